//! `coracle time --style coroutine`.

use super::{Service, Space, Stop, Stream};
use chrono::Local;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// The length of `[2026-11-15 20:15:00]server reply: `.
const HEAD_BYTES: usize = 35;

/// `[2026-11-15 20:15:00]server reply: ` and what was received, byte for byte.
#[derive(Clone)]
pub(crate) struct Time;

impl Service for Time {
    fn serve<S: Stream>(&self, mut stream: S, stop: &Stop) -> io::Result<()> {
        let mut space = Space::new();
        let mut head_second = None;
        loop {
            // The head goes in front of the message, so that both are sent at once.
            match stream.read(&mut space.get()[HEAD_BYTES..]) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    let now =
                        SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|it| it.as_secs());
                    if now.is_none() || now != head_second {
                        head_second = now;
                        write_head(&mut space.get()[..HEAD_BYTES])?;
                    }
                    stop.write_all(&mut stream, &space.get()[..HEAD_BYTES + count])?;
                    if space.used(HEAD_BYTES + count) {
                        head_second = None;
                    }
                }
                Err(error) => return stop.finish(error, &mut stream.share()?, &stream, &mut space),
            }
        }
    }
}

fn write_head(mut head: &mut [u8]) -> io::Result<()> {
    let now = Local::now().format("%Y-%m-%d %H:%M:%S");
    write!(head, "[{now}]server reply: ")
}
