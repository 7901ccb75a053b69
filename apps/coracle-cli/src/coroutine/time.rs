//! `coracle time --style coroutine`.

use super::{Service, Space, Stop, Stream};
use crate::time::{HEAD_BYTES, Head};
use std::io;

/// `[2026-11-15 20:15:00]server reply: ` and what was received, byte for byte.
#[derive(Clone)]
pub(crate) struct Time;

impl Service for Time {
    fn serve<S: Stream>(&self, mut stream: S, stop: &Stop) -> io::Result<()> {
        let (mut space, mut head) = (Space::new(), Head::default());
        loop {
            // The head goes in front of the message, so that both are sent at once.
            match stream.read(&mut space.get()[HEAD_BYTES..]) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    head.write_to(&mut space.get()[..HEAD_BYTES])?;
                    stop.write_all(&mut stream, &space.get()[..HEAD_BYTES + count])?;
                    if space.used(HEAD_BYTES + count) {
                        head = Head::default();
                    }
                }
                Err(error) => return stop.finish(error, &mut stream.share()?, &stream, &mut space),
            }
        }
    }
}
