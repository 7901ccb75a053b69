//! Turns that send on many connections, and then receive on all of them: what is asked for goes to the kernel in
//! rows, and each answer lands where it belongs.

use crate::harness::{Harness, Submission, errno};
use crate::lending::{Lender, Started, start, used_connection};
use coracle_demux::{Handle, Landed, Operation, Payload};
use rustix::io::Errno;
use std::io;

impl Lender {
    /// What comes of a receive, though others are told before it.
    fn finish_any(&self, h: &mut Harness, started: Started) -> io::Result<usize> {
        match started {
            Started::Awaited => self.landed(h, None),
            submitted @ Started::Submitted(_) => self.finish(h, submitted),
        }
    }
}

/// Sends bytes by the shortest way, without waiting; the rest, if any, is under way.
fn send_at_once(h: &mut Harness, socket: Handle, bytes: &[u8]) -> Option<Submission> {
    let sent = h.demux.try_send(socket, bytes).unwrap();
    let rest = Payload::from(bytes[sent..].to_vec());
    (sent < bytes.len()).then(|| h.submit(Operation::Send { socket, payload: rest }))
}

/// Answers that are there before, answers that come later, and receives that are cancelled in the turn in which
/// they were asked for. Each ends once.
fn answers_to_rows_of_sends(h: &mut Harness, connections: usize) {
    let connections: Vec<_> = (0..connections).map(|_| used_connection(h)).collect();
    let mut lenders: Vec<_> = connections.iter().map(|_| Lender::new(8)).collect();
    for round in 0..6u8 {
        let case = |index: usize| (index + usize::from(round)) % 3;
        let answer = |index: usize| [index as u8, round];
        let (mut started, mut rests) = (Vec::new(), Vec::new());
        for (index, (&(a, b), lender)) in connections.iter().zip(&mut lenders).enumerate() {
            rests.push(send_at_once(h, b, &[round]));
            if case(index) == 0 {
                rests.push(send_at_once(h, a, &answer(index)));
            }
            started.push(start(h, b, lender));
            if case(index) == 2 && index % 2 == 0 {
                started[index].cancel(h, b);
            }
        }
        for (index, &(_, b)) in connections.iter().enumerate() {
            if case(index) == 2 {
                started[index].cancel(h, b);
            }
        }
        for (index, &(a, _)) in connections.iter().enumerate() {
            assert_eq!(h.receive_exactly(a, 1), [round]);
            if case(index) == 1 {
                h.send_all(a, &answer(index));
            }
        }
        for (index, (started, lender)) in started.into_iter().zip(&lenders).enumerate() {
            let ended = lender.finish_any(h, started);
            if case(index) == 2 {
                assert_eq!(errno(ended), Errno::CANCELED.raw_os_error());
            } else {
                assert_eq!(ended.unwrap(), 2);
                assert_eq!(lender.bytes[..2], answer(index));
            }
        }
        for rest in rests.into_iter().flatten() {
            h.finish(rest).result.unwrap();
        }
        h.settle();
        assert!(lenders.iter().all(|it| it.place().landing.take() == Landed::Nothing), "once");
    }
}

pub(crate) fn rule_06_answers_to_a_row_of_sends_land_where_they_belong(h: &mut Harness) {
    answers_to_rows_of_sends(h, 40);
}

/// The same with more of them than the kernel is given at once.
pub(crate) fn rule_06_rows_larger_than_every_queue_land_where_they_belong(h: &mut Harness) {
    for modern in [true, false] {
        *h = Harness::with(h.demux.backend(), |settings| {
            settings.limit_submissions = 2;
            settings.modern_uring = modern;
        });
        answers_to_rows_of_sends(h, 100);
    }
}

/// However many were told before of what else has ended.
pub(crate) fn rule_05_close_comes_after_the_end_of_what_was_just_asked_for(h: &mut Harness) {
    let (_a, b) = used_connection(h);
    let mut lenders: Vec<_> = (0..32).map(|_| (used_connection(h).1, Lender::new(8))).collect();
    let ended = |ended| assert_eq!(errno(ended), Errno::CANCELED.raw_os_error());
    let start_one = |h: &mut Harness, (socket, lender): &mut (Handle, Lender)| {
        let started = start(h, *socket, lender);
        started.cancel(h, *socket);
        started
    };
    for extra in 0..3 {
        let started: Vec<_> = lenders.iter_mut().map(|it| start_one(h, it)).collect();
        started
            .into_iter()
            .zip(&lenders)
            .for_each(|(it, (_, lender))| ended(lender.finish_any(h, it)));
        if extra == 2 {
            let mut last = Lender::new(8);
            let started = start(h, b, &mut last);
            let close = h.submit(Operation::Close { handle: b }).token();
            match started {
                Started::Awaited => ended(last.landed(h, Some(close))),
                submitted @ Started::Submitted(_) => ended(last.finish(h, submitted)),
            }
            assert_eq!(h.next_of(close).token, close);
        }
    }
}
