//! The head of a request: its first line and its fields, and what follows from them.
//!
//! Most heads are [plain](super::plain). In all others `httparse` finds the tokens. It is lenient where the RFC
//! lets it be, so what it takes is looked at again: that every line ends in CRLF, that there is one way to read
//! the length of the body, one host, one target.

use super::{Framing, Refusal};
use super::{plain, target};
use crate::headers::{Field, Text};
use crate::owned_request::Known;
use crate::settings::Settings;
use crate::{Method, OwnedRequest, Status, Version};
use httparse::{Error, Header, Request};
use std::mem::MaybeUninit;

/// No head has more fields than this, whatever the settings say.
pub(crate) const LIMIT_FIELDS: usize = 256;

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// It is not all there.
    Partial,
    Whole(Facts),
}

/// What follows from a head, for the connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// How many bytes it has.
    pub(crate) len: usize,
    pub(crate) framing: Framing,
    /// Whether the client wants to ask more, and can.
    pub(crate) keep_alive: bool,
    /// Whether it waits for 100 Continue before it sends the body.
    pub(crate) expects_continue: bool,
    /// Whether it would speak another protocol from here on.
    pub(crate) upgrade: bool,
}

/// Looks for a head at the beginning of `bytes`, and puts a whole one `into` a request that is blank.
#[inline]
pub(crate) fn parse(
    bytes: &[u8],
    settings: &Settings,
    into: &mut OwnedRequest,
) -> Result<Parsed, Refusal> {
    match plain::read(bytes, settings, into) {
        Some(facts) => Ok(Parsed::Whole(facts)),
        None => parse_any(bytes, settings, into),
    }
}

/// The same, of heads of any kind.
#[inline(never)] // it needs much of the stack
pub(crate) fn parse_any(
    bytes: &[u8],
    settings: &Settings,
    into: &mut OwnedRequest,
) -> Result<Parsed, Refusal> {
    let mut space = [const { MaybeUninit::<Header<'_>>::uninit() }; LIMIT_FIELDS];
    let mut request = Request::new(&mut []);
    let fields = &mut space[..settings.limit_headers.min(LIMIT_FIELDS)];
    let parsed = read(bytes, settings, &mut request, fields, into);
    if parsed.is_err() {
        keep_known(&request, settings, into);
    }
    parsed
}

/// Of a request that is refused: keeps of its first line what is what it should be.
#[cold]
fn keep_known(request: &Request<'_, '_>, settings: &Settings, into: &mut OwnedRequest) {
    if !into.headers.text.is_empty() {
        into.known = Known::Begin; // it is there already
        return;
    }
    into.be_unknown();
    let Some(name) = request.method.filter(|name| name.len() <= settings.limit_method_bytes) else {
        return;
    };
    let method = Method::from_bytes(name.as_bytes());
    into.method = method;
    into.headers.text.extend_from_slice(name.as_bytes());
    into.method_name = Text::between(0, name.len());
    let path = request.path.filter(|path| path.len() <= settings.limit_target_bytes);
    let is_path = |path: &&str| {
        path.starts_with(['/', '*']) && target::parse(method, path.as_bytes()).is_ok()
    };
    if let Some(path) = path.filter(is_path) {
        into.headers.text.extend_from_slice(path.as_bytes());
        into.set_target(name.len(), name.len() + path.len());
        if let Some(version) = request.version {
            into.version = version_of(version);
            into.known = Known::Begin;
        }
    }
}

fn version_of(minor: u8) -> Version {
    if minor == 0 { Version::Http10 } else { Version::Http11 }
}

fn read<'h, 'b>(
    bytes: &'b [u8],
    settings: &Settings,
    request: &mut Request<'h, 'b>,
    fields: &'h mut [MaybeUninit<Header<'b>>],
    into: &mut OwnedRequest,
) -> Result<Parsed, Refusal> {
    // One empty line before a request is let pass: some clients send one after a body.
    let skipped = match bytes {
        [b'\r', b'\n', ..] => 2,
        [b'\r'] => return Ok(Parsed::Partial),
        [b'\r' | b'\n', ..] => return Err(Refusal::bad("a line ends in something else than CRLF")),
        _ => 0,
    };
    let bytes_here = &bytes[skipped..];
    if let [b'\r' | b'\n', ..] = bytes_here {
        return Err(Refusal::bad("there is no request between empty lines"));
    }
    match request.parse_with_uninit_headers(bytes_here, fields) {
        Ok(httparse::Status::Complete(len)) => {
            if len > settings.limit_header_bytes {
                return Err(too_large(bytes_here, settings));
            }
            let mut facts = examine(&bytes_here[..len], request, settings, into)?;
            facts.len += skipped;
            Ok(Parsed::Whole(facts))
        }
        Err(error) if error != Error::Version || !is_half_a_version(bytes_here) => {
            Err(explain(error, bytes_here))
        }
        _ => {
            let first_line = memchr::memchr(b'\n', bytes_here).unwrap_or(bytes_here.len());
            let longest = settings.limit_target_bytes + settings.limit_method_bytes + 12;
            if bytes_here.len() > settings.limit_header_bytes || first_line > longest {
                return Err(too_large(bytes_here, settings));
            }
            Ok(Parsed::Partial)
        }
    }
}

/// Whether what has come ends in half a version that is not one of ours: `GET / HTTP/2` is going to be a 505.
fn is_half_a_version(bytes: &[u8]) -> bool {
    let mut parts = bytes.split(|&byte| byte == b' ');
    let (method, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let number = parts.next().and_then(|version| version.strip_prefix(b"HTTP/"));
    let is_half = matches!(number, Some([major] | [major, b'.']) if major.is_ascii_digit());
    is_half && !method.is_empty() && !target.is_empty() && parts.next().is_none()
}

fn too_large(bytes: &[u8], settings: &Settings) -> Refusal {
    let first_line = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    let mut words = bytes[..first_line].split(|&byte| byte == b' ').map(<[u8]>::len);
    let (method, target) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    if method > settings.limit_method_bytes {
        Refusal::new(Status::NOT_IMPLEMENTED, "no method has such a long name")
    } else if target > settings.limit_target_bytes {
        Refusal::new(Status::URI_TOO_LONG, "the target is too long")
    } else {
        Refusal::new(Status::REQUEST_HEADER_FIELDS_TOO_LARGE, "the header is too large")
    }
}

/// What is wrong, in the words of the answer.
fn explain(error: Error, bytes: &[u8]) -> Refusal {
    match error {
        Error::TooManyHeaders => Refusal::new(
            Status::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "there are too many header fields",
        ),
        Error::Version if asks_for_another_version(bytes) => {
            Refusal::new(Status::HTTP_VERSION_NOT_SUPPORTED, "this server speaks HTTP/1.1")
        }
        Error::Version => Refusal::bad("the version is not one"),
        Error::HeaderName => Refusal::bad("a header field has no proper name, or a line is folded"),
        Error::HeaderValue => {
            Refusal::bad("the value of a header field has a control character in it")
        }
        Error::NewLine => Refusal::bad("a line ends in something else than CRLF"),
        Error::Token | Error::Status => Refusal::bad("the first line is not that of a request"),
    }
}

/// Whether all is well with the first line, but that its version is not one of ours.
fn asks_for_another_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut parts = line.strip_suffix(b"\r").unwrap_or(line).split(|&byte| byte == b' ');
    let (method, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let version = parts.next().unwrap_or_default();
    let is_version = matches!(version, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
        if major.is_ascii_digit() && minor.is_ascii_digit());
    is_version && !method.is_empty() && !target.is_empty() && parts.next().is_none()
}

/// Looks at a head again that httparse has taken, and at what its fields mean together.
fn examine(
    bytes: &[u8],
    request: &Request<'_, '_>,
    settings: &Settings,
    into: &mut OwnedRequest,
) -> Result<Facts, Refusal> {
    let (name, path) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    if name.len() > settings.limit_method_bytes {
        return Err(Refusal::new(Status::NOT_IMPLEMENTED, "no method has such a long name"));
    }
    if path.len() > settings.limit_target_bytes {
        return Err(Refusal::new(Status::URI_TOO_LONG, "the target is too long"));
    }
    let place = |text: &[u8]| text.as_ptr() as usize - bytes.as_ptr() as usize;
    let method = Method::from_bytes(name.as_bytes());
    let target_at = place(path.as_bytes());
    let target = target::parse(method, path.as_bytes())?;

    into.headers.text.extend_from_slice(bytes);
    into.method = method;
    into.method_name = Text::between(0, name.len());
    into.version = version_of(request.version.unwrap_or(1));
    if target.path_and_query.start == 0 {
        into.set_target(target_at, target_at + path.len());
    } else {
        let place = target.path_and_query;
        into.set_target(target_at + place.start, target_at + place.end);
        if path.as_bytes().get(place.start) != Some(&b'/') {
            into.path = Text::Static("/"); // an address without a path
        }
    }
    into.host = target.host.map(|host| Text::between(target_at + host.start, target_at + host.end));

    // The line before each of these must end in CRLF: httparse takes a bare LF, too.
    let mut found = Found::default();
    for header in &*request.headers {
        let (start, name) = (place(header.name.as_bytes()), header.name.as_bytes());
        if bytes[..start].last_chunk() != Some(b"\r\n") {
            return Err(Refusal::bad("a line ends in something else than CRLF"));
        }
        let value = header.value.trim_ascii();
        found.note(name, value, bytes)?;
        let at = if value.is_empty() { start } else { place(value) };
        into.headers.fields.push(Field {
            name: Text::between(start, start + name.len()),
            value: Text::between(at, at + value.len()),
        });
    }
    if bytes.last_chunk() != Some(b"\r\n\r\n") {
        return Err(Refusal::bad("a line ends in something else than CRLF"));
    }
    found.conclude(into.version, bytes.len())
}

/// What the fields that concern the connection say, all of them.
#[derive(Default)]
pub(super) struct Found {
    hosts: u32,
    length: Option<u64>,
    chunked: bool,
    coded: bool,
    close: bool,
    keep_alive: bool,
    upgrade_named: bool,
    upgrade: bool,
    expects_continue: bool,
    expects_else: bool,
}

impl Found {
    /// Notes a host that is a name, and nothing else.
    #[inline]
    pub(super) fn note_name_of_host(&mut self) {
        self.hosts += 1;
    }

    /// Most fields are not for us: their length says so.
    #[inline(never)]
    pub(super) fn note(&mut self, name: &[u8], value: &[u8], bytes: &[u8]) -> Result<(), Refusal> {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                self.hosts += 1;
                target::check_host(value)
            }
            6 if name.eq_ignore_ascii_case(b"expect") => {
                let known = value.eq_ignore_ascii_case(b"100-continue");
                self.expects_continue |= known;
                self.expects_else |= !known;
                Ok(())
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                self.upgrade = true;
                Ok(())
            }
            _ => self.note_of_response(name, value, bytes),
        }
    }

    /// The fields that mean the same in both directions.
    #[inline]
    pub(super) fn note_of_response(
        &mut self,
        name: &[u8],
        value: &[u8],
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for token in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                    self.close |= token.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
                    self.upgrade_named |= token.eq_ignore_ascii_case(b"upgrade");
                }
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.note_length(value, bytes),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.note_coding(value),
            _ => Ok(()),
        }
    }

    fn note_length(&mut self, value: &[u8], bytes: &[u8]) -> Result<(), Refusal> {
        if self.length.is_some() {
            return Err(Refusal::bad("there is more than one Content-Length"));
        }
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(value).ok().filter(|_| digits);
        let number = number.and_then(|text| text.parse::<u64>().ok());
        let end = value.as_ptr() as usize - bytes.as_ptr() as usize + value.len();
        match number.filter(|&number| number < 1 << 63) {
            Some(number) if bytes.get(end) == Some(&b'\r') => {
                self.length = Some(number);
                Ok(())
            }
            _ => Err(Refusal::bad("the Content-Length is not a number")),
        }
    }

    fn note_coding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        const UNKNOWN: Refusal =
            Refusal::new(Status::NOT_IMPLEMENTED, "the only Transfer-Encoding here is chunked");
        if std::mem::replace(&mut self.coded, true) {
            return Err(Refusal::bad("there is more than one Transfer-Encoding"));
        }
        let (mut codings, mut chunked, mut chunked_last) = (0, 0, false);
        for coding in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            codings += 1;
            chunked_last = coding.eq_ignore_ascii_case(b"chunked");
            chunked += u32::from(chunked_last);
        }
        match (codings, chunked) {
            (1, 1) => {
                self.chunked = true;
                Ok(())
            }
            // Something else, or that and then chunks.
            (_, 0) => Err(UNKNOWN),
            (_, 1) if chunked_last => Err(UNKNOWN),
            _ => Err(Refusal::bad("the Transfer-Encoding does not end in one chunked")),
        }
    }

    /// How the body is framed, and whether the other side keeps the connection.
    #[inline]
    pub(super) fn framing(&self, modern: bool) -> Result<(Framing, bool), Refusal> {
        if self.coded && self.length.is_some() {
            return Err(Refusal::bad("there are both Content-Length and Transfer-Encoding"));
        }
        if self.coded && !modern {
            return Err(Refusal::bad("HTTP/1.0 has no Transfer-Encoding"));
        }
        let framing = match self.length {
            _ if self.chunked => Framing::Chunked,
            Some(length) if length > 0 => Framing::Length(length),
            _ => Framing::None,
        };
        Ok((framing, !self.close && (modern || self.keep_alive)))
    }

    /// Whether there was a Content-Length, of 0 perhaps.
    pub(super) fn has_length(&self) -> bool {
        self.length.is_some()
    }

    /// What follows from all of them, for a head of so many bytes.
    #[inline(always)] // with every request
    pub(super) fn conclude(&self, version: Version, len: usize) -> Result<Facts, Refusal> {
        let modern = version != Version::Http10;
        let (framing, keep_alive) = self.framing(modern)?;
        if self.hosts > 1 {
            return Err(Refusal::bad("there is more than one Host"));
        }
        if self.hosts == 0 && modern {
            return Err(Refusal::bad("there is no Host"));
        }
        if self.expects_else && modern {
            return Err(Refusal::new(
                Status::EXPECTATION_FAILED,
                "only 100-continue can be expected",
            ));
        }
        Ok(Facts {
            len,
            framing,
            keep_alive,
            expects_continue: self.expects_continue && modern && framing != Framing::None,
            upgrade: self.upgrade && self.upgrade_named && modern,
        })
    }
}
