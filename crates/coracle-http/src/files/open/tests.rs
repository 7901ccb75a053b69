//! Facts about opening, each for all ways: the kernel's, ours, and ours because the kernel was disturbed.

use super::*;
use crate::files::test_dir::TestDir;
use proptest::prelude::*;
use rustix::fs::inotify;
use std::io::Read;
use std::os::unix::net::UnixListener;

/// A root that is served by openat2, one by a walk, and one whose openat2 is always disturbed by renames.
fn each_way(path: &Path, symlinks: Symlinks) -> [Root; 3] {
    [(true, LIMIT_TRIES), (false, LIMIT_TRIES), (true, 0)].map(|(openat2, tries)| {
        let mut root = Root::new(path, symlinks).unwrap();
        root.openat2.store(openat2, Ordering::Relaxed);
        root.tries = tries;
        root
    })
}

/// The kernel finds the place, and is disturbed when it is to open it.
#[test]
fn n2_files_are_opened_by_a_walk_when_renames_disturb_the_kernel() {
    let dir = site();
    dir.link("site/a/up", "../index.html").link("site/out", "../secret");
    let mut root = Root::new(&dir.path().join("site"), Symlinks::Inside).unwrap();
    let above = root.open_root().unwrap();
    let place = |root: &Root, path: &str| root.find(above.as_fd(), path).unwrap();
    let found = ["index.html", "a/up", "a/b/deep"].map(|path| (path, place(&root, path)));
    root.tries = 0;
    for (path, place) in found {
        assert!(place.within.is_none(), "the kernel has found it");
        let opened = root.open_file(above.as_fd(), path, &place).unwrap();
        let Opened::File(mut file, _) = opened else { panic!("{path} is a file") };
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, if path == "a/b/deep" { "deep" } else { "index" });
    }
    // What has become a directory meanwhile, or a link that leads out, is not opened.
    for path in ["a", "out"] {
        let place = Place { descriptor: root.open_root().unwrap(), within: None };
        let opened = root.open_file(above.as_fd(), path, &place);
        assert_eq!(opened.map_err(|error| error.status()).unwrap_err(), 404, "{path}");
    }
    assert!(root.openat2.load(Ordering::Relaxed), "the kernel is asked the next time");
}

/// What is in the file, or why it is not served.
fn read(root: &Root, relative: &str) -> Result<String, u16> {
    let seen = root.look(relative).map_err(|error| error.status());
    match root.open(relative) {
        Ok(Opened::File(mut file, state)) => {
            assert_eq!(seen, Ok(Seen::File(state)), "a look sees what is opened");
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text.len() as u64, state.length);
            Ok(text)
        }
        Ok(Opened::Directory(_)) => {
            assert!(matches!(seen, Ok(Seen::Directory(_))));
            Ok("a directory".to_owned())
        }
        Err(error) => {
            let status = error.status();
            if status != 403 {
                assert_eq!(seen, Err(status));
            }
            Err(status)
        }
    }
}

fn site() -> TestDir {
    let dir = TestDir::new();
    dir.file("secret", "outside").file("site/index.html", "index").file("site/a/b/deep", "deep");
    dir
}

#[test]
fn n2_files_and_directories_below_are_opened() {
    let dir = site();
    for root in each_way(&dir.path().join("site"), Symlinks::Never) {
        assert_eq!(read(&root, "index.html").as_deref(), Ok("index"));
        assert_eq!(read(&root, "a/b/deep").as_deref(), Ok("deep"));
        assert_eq!(read(&root, "").as_deref(), Ok("a directory"));
        assert_eq!(read(&root, "a/b").as_deref(), Ok("a directory"));
        assert_eq!(read(&root, "nothing"), Err(404));
        assert_eq!(read(&root, "index.html/x"), Err(404), "a file is not a directory");
        assert_eq!(read(&root, &"n".repeat(256)), Err(404));
        assert_eq!(read(&root, &"n/".repeat(2100)), Err(404));
    }
}

#[test]
fn n2_links_inside_are_followed_and_others_are_not_there() {
    let dir = site();
    dir.link("site/inside", "index.html")
        .link("site/around", "a/../a/b/../b/deep")
        .link("site/a/b/up", "../../index.html")
        .link("site/folder", "a/b")
        .link("site/twice", "inside")
        .link("site/out", "../secret")
        .link("site/a/out", "../../secret")
        .link("site/out-and-in", "../site/index.html")
        .link("site/absolute", dir.path().join("secret"))
        .link("site/absolute-inside", dir.path().join("site/index.html"))
        .link("site/top", "/")
        .link("site/loop", "loop")
        .link("site/nowhere", "gone");
    let root = dir.path().join("site");
    for root in each_way(&root, Symlinks::Inside) {
        for (name, text) in [
            ("inside", "index"),
            ("around", "deep"),
            ("a/b/up", "index"),
            ("folder/deep", "deep"),
            ("folder/up", "index"),
            ("twice", "index"),
            ("folder", "a directory"),
        ] {
            assert_eq!(read(&root, name).as_deref(), Ok(text), "{name}");
        }
        for name in [
            "out",
            "a/out",
            "out-and-in",
            "absolute",
            "absolute-inside",
            "top",
            "top/etc/passwd",
            "loop",
            "nowhere",
        ] {
            assert_eq!(read(&root, name), Err(404), "{name}");
        }
    }
    for root in each_way(&root, Symlinks::Never) {
        for name in ["inside", "folder", "folder/deep", "out", "absolute", "loop"] {
            assert_eq!(read(&root, name), Err(404), "{name}");
        }
    }
    for root in each_way(&root, Symlinks::Anywhere) {
        for (name, text) in [
            ("inside", "index"),
            ("out", "outside"),
            ("a/out", "outside"),
            ("out-and-in", "index"),
            ("absolute", "outside"),
            ("absolute-inside", "index"),
            ("top", "a directory"),
        ] {
            assert_eq!(read(&root, name).as_deref(), Ok(text), "{name}");
        }
        assert_eq!(read(&root, "loop"), Err(404));
    }
}

#[test]
fn n2_dot_dot_never_leads_out() {
    // The path of a request has none, but this is the last line.
    let dir = site();
    for symlinks in [Symlinks::Inside, Symlinks::Never] {
        for root in each_way(&dir.path().join("site"), symlinks) {
            for path in ["../secret", "a/../../secret", "..", "a/b/../../../secret", "/etc/passwd"]
            {
                let opened = read(&root, path);
                assert_eq!(opened, Err(404), "{path} {root:?}");
            }
        }
    }
}

#[test]
fn n2_magic_links_are_never_followed() {
    let dir = site();
    dir.link("site/root", "/proc/self/root").link("site/cwd", "/proc/self/cwd");
    let held = File::open(dir.path().join("secret")).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&held);
    dir.link("site/held", format!("/proc/self/fd/{number}"));
    for root in each_way(&dir.path().join("site"), Symlinks::Anywhere) {
        for path in ["root/etc/passwd", "root", "cwd", "held"] {
            assert_eq!(read(&root, path), Err(404), "{path}");
        }
    }
}

#[test]
fn n2_special_files_are_not_there_and_never_opened() {
    let dir = site();
    let fifo = dir.path().join("site/fifo");
    let mode = Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
    let _listener = UnixListener::bind(dir.path().join("site/socket")).unwrap();
    dir.link("site/null", "/dev/null").link("site/fifo-link", "fifo");
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, &fifo, inotify::WatchFlags::OPEN).unwrap();
    for symlinks in [Symlinks::Inside, Symlinks::Anywhere] {
        for root in each_way(&dir.path().join("site"), symlinks) {
            for name in ["fifo", "socket", "null", "fifo-link", "fifo/x"] {
                assert_eq!(read(&root, name), Err(404), "{name}");
            }
        }
    }
    let mut space = [std::mem::MaybeUninit::uninit(); 512];
    let events = inotify::Reader::new(&watch, &mut space).next().map(|event| event.events());
    assert_eq!(events, Err(Errno::AGAIN), "nobody has opened the FIFO");
    // The watch does see it when somebody does.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    rustix::fs::open(&fifo, flags, Mode::empty()).unwrap();
    let events = inotify::Reader::new(&watch, &mut space).next().map(|event| event.events());
    assert_eq!(events, Ok(inotify::ReadFlags::OPEN));
}

#[test]
fn n2_kernel_without_openat2_is_noticed() {
    let dir = site();
    let root = Root::new(dir.path(), Symlinks::Inside).unwrap();
    assert!(root.openat2.load(Ordering::Relaxed));
    assert_eq!(read(&root, "secret").as_deref(), Ok("outside"));
    assert!(Root::new(&dir.path().join("secret"), Symlinks::Inside).is_err(), "not a directory");
    assert!(Root::new(&dir.path().join("gone"), Symlinks::Inside).is_err());
}

#[test]
fn n2_root_that_is_switched_takes_effect() {
    let dir = TestDir::new();
    dir.file("one/version", "1").file("two/version", "2").link("current", "one");
    let root = Root::new(&dir.path().join("current"), Symlinks::Never).unwrap();
    assert_eq!(read(&root, "version").as_deref(), Ok("1"));
    dir.link("next", "two");
    std::fs::rename(dir.path().join("next"), dir.path().join("current")).unwrap();
    assert_eq!(read(&root, "version").as_deref(), Ok("2"));
}

#[test]
fn n3_state_changes_when_the_file_does() {
    let dir = site();
    let root = Root::new(dir.path(), Symlinks::Never).unwrap();
    let state = || match root.look("secret") {
        Ok(Seen::File(state)) => state,
        other => panic!("{other:?}"),
    };
    let before = state();
    assert_eq!(before, state());
    dir.file("new", "another");
    std::fs::rename(dir.path().join("new"), dir.path().join("secret")).unwrap();
    let after = state();
    assert_ne!(before, after);
    assert_ne!(before.validators().etag(), after.validators().etag());
    assert_eq!(before.length, after.length, "only who it is has changed");
}

/// One entry of a random tree: a file, a directory, or a link to somewhere.
#[derive(Debug, Clone)]
enum Node {
    File,
    Directory,
    Link(String),
}

fn node() -> impl Strategy<Value = Node> {
    prop_oneof![
        2 => Just(Node::File),
        2 => Just(Node::Directory),
        3 => "(\\.\\./|\\./|[ab]/){0,4}[ab.]{1,2}".prop_map(Node::Link),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Ours is as strict as the kernel's, whatever the links are.
    #[test]
    fn n2_walk_agrees_with_the_kernel(
        nodes in prop::collection::vec(("[ab](/[ab]){0,2}", node()), 1..8),
        paths in prop::collection::vec("[ab](/[ab]){0,3}", 1..12),
    ) {
        let dir = TestDir::new();
        dir.directory("top/site").file("top/secret", "outside").file("top/b/a", "outside");
        for (path, node) in &nodes {
            let path = dir.path().join("top/site").join(path);
            // What is in the way stays; not every tree can be made.
            let _ = std::fs::create_dir_all(path.parent().unwrap());
            let _ = match node {
                Node::File => std::fs::OpenOptions::new().create_new(true).write(true).open(&path).map(drop),
                Node::Directory => std::fs::create_dir(&path),
                Node::Link(target) => std::os::unix::fs::symlink(target, &path),
            };
        }
        for symlinks in [Symlinks::Inside, Symlinks::Never, Symlinks::Anywhere] {
            let [kernel, ours, disturbed] = each_way(&dir.path().join("top/site"), symlinks);
            for path in &paths {
                let by_kernel = kernel.look(path).map_err(|error| error.status());
                let by_us = ours.look(path).map_err(|error| error.status());
                prop_assert_eq!(&by_kernel, &by_us, "{} {:?} {:?}", path, symlinks, nodes);
                let by_both = disturbed.look(path).map_err(|error| error.status());
                prop_assert_eq!(by_us, by_both, "{} {:?} {:?}", path, symlinks, nodes);
            }
        }
    }
}
