//! `coracle echo --style coroutine`.

use super::{Service, Space, Stop, Stream};
use std::io;

/// Sends back whatever arrives.
#[derive(Clone)]
pub(crate) struct Echo;

impl Service for Echo {
    fn serve<S: Stream>(&self, mut stream: S, stop: &Stop) -> io::Result<()> {
        let mut space = Space::new();
        loop {
            match stream.read(space.get()) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    stop.write_all(&mut stream, &space.get()[..count])?;
                    space.used(count);
                }
                Err(error) => return stop.finish(error, &mut stream.share()?, &stream, &mut space),
            }
        }
    }
}
