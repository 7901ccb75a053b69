//! What a spawned future leaves, and who is told.

use crate::future::FutureError;
use crate::primitive::Lock;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Between a future and its handle.
pub(super) struct Outcome<T>(Lock<State<T>>);

struct State<T> {
    is_there: bool,
    result: Option<Result<T, FutureError>>,
    /// Whoever polled the handle last.
    waker: Option<Waker>,
}

impl<T> Outcome<T> {
    pub(super) fn new() -> Arc<Outcome<T>> {
        Arc::new(Outcome(Lock::new(State { is_there: false, result: None, waker: None })))
    }

    /// Whether it is over.
    pub(super) fn is_there(&self) -> bool {
        self.0.lock().is_there
    }

    /// What was left; once.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Result<T, FutureError>> {
        let mut state = self.0.lock();
        if let Some(result) = state.result.take() {
            return Poll::Ready(result);
        }
        assert!(!state.is_there, "a handle was polled after it was ready");
        let former = state.waker.replace(cx.waker().clone());
        drop(state);
        drop(former); // which may be the last of somebody's
        Poll::Pending
    }

    /// It is over.
    pub(super) fn set(&self, result: Result<T, FutureError>) {
        let mut state = self.0.lock();
        state.is_there = true;
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
