//! What a client sends, and what it must get for it: both are known before they meet.
//!
//! ```text
//!   request   [tag] [requests after this one] [length, 2 bytes] [payload]
//!   answer    [tag] [length, 2 bytes] [payload, each byte ^ 1]
//! ```

use crate::coat;
use crate::random::Random;

/// What a server does with its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Sends back what comes.
    Echo,
    /// The same, and stops reading now and then.
    Pause,
    /// Answers each request.
    Framed,
    /// One request, a long answer, made as fast as it is taken.
    Bulk,
    /// Becomes another protocol in mid-stream.
    Switch,
    /// Has its answers made elsewhere.
    Offload,
    /// Closes after so many requests.
    Close,
    /// Refuses the request after so many.
    Refuse,
    /// Ends its side after one request, and goes on reading.
    HalfClose,
    /// Panics at a request.
    Panic,
    /// Answers out of order, on purpose, and writes to others.
    Urgent,
    /// Gives its socket away in mid-stream.
    Hijack,
    /// Puts on another coat in mid-stream.
    Upgrade,
}

pub(crate) const KINDS: [Kind; 13] = [
    Kind::Echo,
    Kind::Pause,
    Kind::Framed,
    Kind::Bulk,
    Kind::Switch,
    Kind::Offload,
    Kind::Close,
    Kind::Refuse,
    Kind::HalfClose,
    Kind::Panic,
    Kind::Urgent,
    Kind::Hijack,
    Kind::Upgrade,
];

/// The key of the coat that is put on in mid-stream.
pub(crate) const UPGRADE: u8 = 0x99;

/// Says that nobody promises how many requests are to come.
pub(crate) const UNKNOWN: u8 = 0xee;

pub(crate) const GREETING: &[u8] = b"hello";
pub(crate) const SWITCHED: &[u8] = b"switched";
pub(crate) const TAKEN: &[u8] = b"taken";

/// What a connection that is turned away gets. No answer begins like this.
pub(crate) const BUSY: &[u8] = &[0xff; 5];

pub(crate) const NORMAL: u8 = b'N';
/// The request that makes a server do what its kind is for.
pub(crate) const SPECIAL: u8 = b'S';
pub(crate) const URGENT: u8 = b'U';
pub(crate) const THEN: u8 = b'T';
pub(crate) const FROM_ANOTHER: u8 = b'W';

/// One client's part.
pub(crate) struct Script {
    pub(crate) input: Vec<u8>,
    pub(crate) wanted: Wanted,
    /// The server closes by itself when everything is sent.
    pub(crate) server_ends: bool,
    /// The keys of the coats that both sides wear from the beginning, the innermost first.
    coats: Vec<u8>,
}

/// What is to come back.
pub(crate) enum Wanted {
    /// This.
    All(Vec<u8>),
    /// At most this.
    Beginning(Vec<u8>),
    /// Answers of several tags, each in the order of these, with those of others among them.
    Mixed(Vec<Vec<u8>>),
}

impl Script {
    pub(crate) fn new(kind: Kind, coats: &[u8], random: &mut Random, promised: bool) -> Script {
        let (input, wanted, server_ends) = Script::plain(kind, random, promised);
        let wanted = match wanted {
            Wanted::All(bytes) => Wanted::All(coat::put_on(coats, &bytes)),
            Wanted::Beginning(bytes) => Wanted::Beginning(coat::put_on(coats, &bytes)),
            mixed => mixed, // which is looked at without coats
        };
        Script { input: coat::put_on(coats, &input), wanted, server_ends, coats: coats.to_vec() }
    }

    /// What is sent and what is wanted for it, without coats, and whether the server ends.
    fn plain(kind: Kind, random: &mut Random, promised: bool) -> (Vec<u8>, Wanted, bool) {
        let count = 1 + random.below(8) as usize;
        let special = random.below(count as u64) as usize;
        let mut requests = Vec::new();
        for number in 0..count {
            let after = if promised { (count - 1 - number) as u8 } else { UNKNOWN };
            let tag = if number == special { SPECIAL } else { NORMAL };
            requests.push((tag, after, payload(random)));
        }
        let server_ends = matches!(kind, Kind::Bulk | Kind::Close | Kind::Refuse | Kind::Panic);
        if kind == Kind::Bulk {
            let len = random.below(12_000) as u32;
            let input = request(
                SPECIAL,
                requests[0].1.min(if promised { 0 } else { UNKNOWN }),
                &len.to_le_bytes(),
            );
            let all = (0..len as usize).map(pattern).collect();
            return (input, Wanted::All(all), server_ends);
        }
        let input = requests.iter().flat_map(|(tag, after, bytes)| request(*tag, *after, bytes));
        let mut input: Vec<u8> = input.collect();
        // What follows the special request is not a request any more, where the protocol changes.
        let rest = || -> Vec<u8> {
            let rest = requests[special + 1..].iter();
            rest.flat_map(|(tag, after, bytes)| request(*tag, *after, bytes)).collect()
        };
        let answers = |numbers: std::ops::Range<usize>| -> Vec<u8> {
            requests[numbers].iter().flat_map(|(tag, _, bytes)| answer(*tag, bytes)).collect()
        };
        let until_special = || answers(0..special + 1);
        let wanted = match kind {
            Kind::Echo | Kind::Pause => Wanted::All(input.clone()),
            Kind::Framed | Kind::Offload => Wanted::All(answers(0..count)),
            Kind::Switch => {
                let shifted = rest().iter().map(|byte| byte ^ 0x20).collect();
                Wanted::All([until_special(), SWITCHED.to_vec(), shifted].concat())
            }
            Kind::Hijack => Wanted::All([until_special(), TAKEN.to_vec(), rest()].concat()),
            Kind::Upgrade => {
                let rest = rest();
                input.truncate(input.len() - rest.len());
                input.extend(coat::put_on(&[UPGRADE], &rest));
                let answers = coat::put_on(&[UPGRADE], &answers(special + 1..count));
                Wanted::All([until_special(), answers].concat())
            }
            Kind::Close | Kind::Refuse => Wanted::All(until_special()),
            Kind::HalfClose => Wanted::All([GREETING.to_vec(), answers(0..1)].concat()),
            Kind::Panic => Wanted::Beginning(answers(0..special)),
            Kind::Urgent => Wanted::Mixed(
                [NORMAL, URGENT, THEN]
                    .map(|tag| {
                        requests.iter().flat_map(|(_, _, bytes)| answer(tag, bytes)).collect()
                    })
                    .into(),
            ),
            Kind::Bulk => unreachable!("made above"),
        };
        (input, wanted, server_ends)
    }

    /// How many bytes are to come back, if that is known.
    pub(crate) fn wanted_bytes(&self) -> Option<usize> {
        match &self.wanted {
            Wanted::All(bytes) => Some(bytes.len()),
            Wanted::Beginning(_) | Wanted::Mixed(_) => None,
        }
    }

    /// What is wrong with what came back; `complete` if nothing has gone wrong that explains less.
    pub(crate) fn objection(&self, got: &[u8], complete: bool) -> Option<String> {
        match &self.wanted {
            Wanted::All(bytes) => beginning(got, bytes).or_else(|| {
                let short = complete && got.len() < bytes.len();
                short.then(|| format!("{} of {} bytes came back", got.len(), bytes.len()))
            }),
            Wanted::Beginning(bytes) => beginning(got, bytes),
            Wanted::Mixed(lists) => match coat::take_off(&self.coats, got) {
                Some(got) => mixed(&got, lists, complete),
                None => Some("the greeting is wrong".to_owned()),
            },
        }
    }
}

fn beginning(got: &[u8], of: &[u8]) -> Option<String> {
    if of.starts_with(got) {
        return None;
    }
    let at = got.iter().zip(of).position(|(a, b)| a != b).unwrap_or(of.len());
    let part =
        |bytes: &[u8]| format!("{:?}", &bytes[at.min(bytes.len())..(at + 12).min(bytes.len())]);
    Some(format!("byte {at} is wrong: {} instead of {}", part(got), part(of)))
}

/// Takes the answers apart by their tags; each must be whole.
fn mixed(mut got: &[u8], lists: &[Vec<u8>], complete: bool) -> Option<String> {
    let mut found = vec![Vec::new(); lists.len()];
    while let [tag, low, high, rest @ ..] = got {
        let len = usize::from(u16::from_le_bytes([*low, *high]));
        let whole = 3 + len.min(rest.len());
        match [NORMAL, URGENT, THEN].iter().position(|it| it == tag) {
            Some(which) => found[which].extend_from_slice(&got[..whole]),
            None if *tag == FROM_ANOTHER => {}
            None => return Some(format!("a packet was cut open: a tag of {tag:#x}")),
        }
        got = &got[whole..];
    }
    let wrong = found.iter().zip(lists).find_map(|(found, list)| {
        let short = complete && found.len() < list.len();
        beginning(found, list).or_else(|| short.then(|| "an answer is missing".to_owned()))
    });
    wrong.or_else(|| (complete && !got.is_empty()).then(|| "half an answer came".to_owned()))
}

fn payload(random: &mut Random) -> Vec<u8> {
    let len = match random.below(20) {
        0 => random.below(6000),
        1..4 => random.below(500),
        _ => random.below(60),
    };
    let salt = random.below(200) as usize;
    (0..len as usize).map(|at| pattern(at + salt)).collect()
}

/// Different everywhere, so that nothing can be lost, doubled or moved unnoticed; below `0xd0`.
pub(crate) fn pattern(at: usize) -> u8 {
    ((at * 31 + (at >> 8)) % 0xd0) as u8
}

fn request(tag: u8, after: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u16).to_le_bytes();
    [&[tag, after], &len[..], payload].concat()
}

/// The answer to a request.
pub(crate) fn answer(tag: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u16).to_le_bytes();
    let mut answer = [&[tag], &len[..]].concat();
    answer.extend(payload.iter().map(|byte| byte ^ 1));
    answer
}
