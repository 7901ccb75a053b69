//! Many that are ready in one turn: statements 4, 5 and 10, for backends that receive for some before they tell of
//! the first.

use crate::harness::Harness;
use coracle_demux::{Completion, Handle, Operation, Outcome, Token};
use rustix::io::Errno;
use std::collections::HashMap;

/// More than any backend receives for at a time.
const MANY: usize = 80;

/// A message that says whose it is.
fn message(of: usize) -> Vec<u8> {
    vec![of as u8; 100 + of]
}

/// Connections with a lent receive in flight, for each of which a message is there: the far end, the near one, and
/// the receive.
fn crowd(h: &mut Harness) -> Vec<(Handle, Handle, Token)> {
    let crowd: Vec<_> = (0..MANY)
        .map(|_| {
            let (a, b) = h.connection();
            (a, b, h.submit(Operation::ReceiveLent { socket: b }).token())
        })
        .collect();
    h.settle();
    for (index, &(a, ..)) in crowd.iter().enumerate() {
        h.send_all(a, &message(index));
    }
    crowd
}

/// What has come of each, by its token, while completions are taken.
#[derive(Default)]
struct Heard {
    bytes: HashMap<Token, Vec<u8>>,
    ended: HashMap<Token, Option<i32>>,
}

impl Heard {
    fn note(&mut self, completion: Completion) {
        let Completion { token, more, result, .. } = completion;
        assert!(!self.ended.contains_key(&token), "something follows a final completion");
        let error = match result {
            Ok(Outcome::Lent(bytes)) => {
                self.bytes.entry(token).or_default().extend_from_slice(&bytes);
                None
            }
            Ok(_) => None,
            Err(error) => error.raw_os_error(),
        };
        if !more {
            self.ended.insert(token, error);
        }
    }

    fn bytes_of(&self, token: Token) -> Vec<u8> {
        self.bytes.get(&token).cloned().unwrap_or_default()
    }
}

/// The first to be told has all others cancelled: what was received for them is told before their end, and the
/// rest is there for whoever receives next.
pub(crate) fn rule_04_cancel_of_all_others_in_a_turn_loses_no_byte(h: &mut Harness) {
    let crowd = crowd(h);
    let mut heard = Heard::default();
    heard.note(h.next());
    crowd.iter().for_each(|&(.., token)| h.demux.cancel(token));
    while heard.ended.len() < MANY {
        heard.note(h.next());
    }
    for (index, &(_, b, token)) in crowd.iter().enumerate() {
        let ended = heard.ended[&token];
        assert!(ended.is_none_or(|it| it == Errno::CANCELED.raw_os_error()), "{ended:?}");
        let told = heard.bytes_of(token);
        let rest = h.receive_exactly(b, message(index).len() - told.len());
        assert_eq!([told, rest].concat(), message(index));
    }
}

/// The same by closing them: each receive ends, each close ends after it, and nothing else is heard of them.
pub(crate) fn rule_05_close_of_all_others_in_a_turn_comes_last(h: &mut Harness) {
    let crowd = crowd(h);
    let mut heard = Heard::default();
    heard.note(h.next());
    let closes: Vec<_> = crowd
        .iter()
        .map(|&(_, b, receive)| (receive, h.submit(Operation::Close { handle: b }).token()))
        .collect();
    while heard.ended.len() < 2 * MANY {
        let completion = h.next();
        if let Some((receive, _)) = closes.iter().find(|(_, close)| *close == completion.token) {
            assert!(heard.ended.contains_key(receive), "the close was first");
        }
        heard.note(completion);
    }
    assert!(h.settle().is_empty());
    for (index, &(a, _, receive)) in crowd.iter().enumerate() {
        assert!(message(index).starts_with(&heard.bytes_of(receive)));
        h.close(a);
    }
    assert_eq!(h.demux.in_flight(), 0);
}

/// Answers that are tried while others of the turn are told reach everybody, and so does what is sent behind them.
pub(crate) fn rule_07_answers_of_a_turn_reach_everybody(h: &mut Harness) {
    let crowd = crowd(h);
    let by_token: HashMap<Token, Handle> = crowd.iter().map(|&(_, b, it)| (it, b)).collect();
    let mut answered: HashMap<Handle, Vec<u8>> = HashMap::new();
    let wanted: usize = (0..MANY).map(|index| message(index).len()).sum();
    while answered.values().map(Vec::len).sum::<usize>() < wanted {
        let completion = h.next();
        let Some(&b) = by_token.get(&completion.token) else { panic!("{completion:?}") };
        let Ok(Outcome::Lent(bytes)) = completion.result else { panic!("{:?}", completion.result) };
        assert!(completion.more, "an end of its own accord is not expected here");
        let sent = h.demux.try_send(b, &bytes).unwrap();
        h.send_all(b, &bytes[sent..]);
        answered.entry(b).or_default().extend_from_slice(&bytes);
    }
    for (index, &(a, ..)) in crowd.iter().enumerate() {
        assert_eq!(h.receive_exactly(a, message(index).len()), message(index));
    }
}
