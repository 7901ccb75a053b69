//! Where hyper has its futures run: on the loop, beside coroutines and callbacks.

use super::Shared;
use super::stream::{Answer, Answering, Stream};
use coracle_coro::future::spawn_future;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::Service;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Answers the requests of a connection.
pub(super) struct Requests(pub(super) Rc<Shared>);

impl Service<http::Request<Incoming>> for Requests {
    type Response = Answer;
    type Error = io::Error;
    type Future = Answering;

    fn call(&self, request: http::Request<Incoming>) -> Answering {
        self.0.count_request();
        let answering = Stream::begin(&self.0, request);
        self.0.calling.set(Some(Rc::clone(&answering.stream)));
        answering
    }
}

/// Runs the tasks of a connection. Hyper has one for each request, which it gives away right after the call.
#[derive(Clone)]
pub(super) struct Tasks(pub(super) Rc<Shared>);

impl<F> Executor<F> for Tasks
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, task: F) {
        let Some(stream) = self.0.calling.take() else {
            drop(spawn_future(task));
            return;
        };
        // Most have their answer already, and are over before they become anybody's task.
        let mut task = Box::pin(task);
        if task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return self.0.note_unsent(&stream);
        }
        let entered = Entered::new(stream);
        drop(spawn_future(async move {
            let stream = &entered.0;
            poll_fn(|cx| {
                if stream.is_failed() {
                    return Poll::Ready(()); // dropped, it resets its stream
                }
                stream.set_task(cx.waker());
                task.as_mut().poll(cx)
            })
            .await;
            drop(task);
            drop(entered);
        }));
    }
}

/// A stream that is among those of its connection with which hyper is not done.
struct Entered(Rc<Stream>);

impl Entered {
    fn new(stream: Rc<Stream>) -> Entered {
        stream.conn.enter(&stream);
        Entered(stream)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.conn.leave(&self.0);
    }
}
