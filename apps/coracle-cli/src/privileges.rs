//! What a server gives up once its sockets are open: the user it was started by, the right to gain privileges, and
//! copies of its memory in core files.

use nix::unistd::{self, Gid, Group, Uid, User};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::CString;
use std::fmt;
use std::io;

/// Who is to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    /// As it was written.
    text: String,
    uid: Uid,
    gid: Gid,
    /// Whose further groups it has; none for who was given a group, or has no name.
    name: Option<CString>,
}

impl Account {
    /// Looks up `NAME`, or `NAME:GROUP`; both may be numbers.
    ///
    /// # Errors
    /// There is no such user or group.
    pub(crate) fn find(text: &str) -> io::Result<Account> {
        let wrong = |why: String| {
            let text = format!("cannot serve as the user {text:?}: {why}");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        let (name, group) = match text.split_once(':') {
            Some((name, group)) => (name, Some(group)),
            None => (text, None),
        };
        let user = match name.parse() {
            Ok(number) => User::from_uid(Uid::from_raw(number))?,
            Err(_) => User::from_name(name)?,
        };
        let number = name.parse().ok().map(Uid::from_raw);
        let uid = user.as_ref().map(|user| user.uid).or(number);
        let uid = uid.ok_or_else(|| wrong("there is none of that name".into()))?;
        let gid = match (group, &user) {
            (Some(group), _) => {
                find_group(group)?.ok_or_else(|| wrong(format!("there is no group {group:?}")))?
            }
            (None, Some(user)) => user.gid,
            (None, None) => {
                return Err(wrong("a number without a name needs a group: NUMBER:GROUP".into()));
            }
        };
        let name = user.filter(|_| group.is_none()).map(|user| CString::new(user.name));
        Ok(Account { text: text.to_owned(), uid, gid, name: name.transpose()? })
    }

    /// Becomes this user, with all threads and for good. Nothing happens if it is that user already, and in the
    /// group that was named, if one was: as a worker is that was started by one who has done this.
    fn take_on(&self) -> io::Result<()> {
        let is_user = unistd::getuid() == self.uid && unistd::geteuid() == self.uid;
        let is_group = unistd::getgid() == self.gid && unistd::getegid() == self.gid;
        if is_user && (is_group || self.name.is_some()) {
            return Ok(());
        }
        let failed = |why: &dyn std::fmt::Display| {
            let text = format!("cannot become the user {:?}: {why}", self.text);
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        };
        if !unistd::geteuid().is_root() {
            let why = match is_user {
                true => "only root may change the group; start it as root, or leave the group out",
                false => "only root may; start it as root, or leave the user out",
            };
            return Err(failed(&why));
        }
        // Not the system calls themselves, which are for one thread: libc sees to it that all follow.
        let groups = match &self.name {
            Some(name) => unistd::initgroups(name, self.gid),
            None => unistd::setgroups(&[self.gid]),
        };
        groups
            .and_then(|()| unistd::setgid(self.gid))
            .and_then(|()| unistd::setuid(self.uid))
            .map_err(|error| failed(&error))?;
        match unistd::setuid(Uid::from_raw(0)) {
            Ok(()) if !self.uid.is_root() => Err(failed(&"there is a way back")),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

fn find_group(text: &str) -> io::Result<Option<Gid>> {
    Ok(match text.parse() {
        Ok(number) => Some(Gid::from_raw(number)),
        Err(_) => Group::from_name(text)?.map(|group| group.gid),
    })
}

/// Gives up what is not needed to serve. Call it when all sockets are open.
///
/// # Errors
/// This process may not become that user.
pub(crate) fn give_up(account: Option<&Account>) -> io::Result<()> {
    account.map_or(Ok(()), Account::take_on)?;
    rustix::thread::set_no_new_privs(true)?;
    // Who wants to know may raise it again from outside: `prlimit --core=unlimited --pid`.
    let limit = getrlimit(Resource::Core);
    setrlimit(Resource::Core, Rlimit { current: Some(0), ..limit })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q5_users_are_found_by_name_and_number() {
        let root = Account::find("root").unwrap();
        assert_eq!((root.uid.as_raw(), root.gid.as_raw()), (0, 0));
        assert_eq!(root.name.as_deref(), Some(c"root"));
        let account = Account::find("root:12345").unwrap();
        assert_eq!((account.gid.as_raw(), &account.name), (12345, &None));
        let account = Account::find("54321:0").unwrap();
        assert_eq!((account.uid.as_raw(), account.gid.as_raw()), (54321, 0));
        assert_eq!(Account::find("0").unwrap().name.as_deref(), Some(c"root"));
    }

    #[test]
    fn q5_users_that_are_not_there_are_named() {
        let told = |text: &str| Account::find(text).unwrap_err().to_string();
        assert!(told("no one").contains("\"no one\": there is none of that name"));
        assert!(told("root:no one").contains("there is no group \"no one\""));
        assert!(told("54321").contains("NUMBER:GROUP"));
        assert!(told("").contains("there is none"));
    }
}
