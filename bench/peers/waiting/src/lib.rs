//! What handlers wait for, in plain blocking code: the same source for coracle with its hooks, for rouille, for a
//! thread for each connection, and for axum, whose thread it blocks.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use redis::{Client, Connection};

/// What every handler answers.
pub const DONE: &str = "done\n";

/// A list that nobody ever puts anything into.
pub const NOTHING: &str = "nothing";

/// A handler: `/sleep/MILLISECONDS` sleeps, `/blpop/MILLISECONDS` has Redis wait for a list that stays empty.
pub struct Waiting {
    redis: Option<Client>,
    /// A connection waits for one thing at a time, so there are as many as there are requests.
    idle: Mutex<Vec<Connection>>,
}

impl Waiting {
    /// A handler that has this Redis, `redis://HOST:PORT/`.
    ///
    /// # Errors
    /// When that is no URL of one.
    pub fn new(redis: Option<&str>) -> io::Result<Waiting> {
        let redis = redis.map(Client::open).transpose().map_err(io::Error::other)?;
        Ok(Waiting { redis, idle: Mutex::default() })
    }

    /// Waits as the path says, and answers; nothing, if it says something else.
    pub fn answer(&self, path: &str) -> Option<&'static str> {
        let (what, milliseconds) = path.strip_prefix('/')?.split_once('/')?;
        let time = Duration::from_millis(milliseconds.parse().ok()?);
        match what {
            "sleep" => thread::sleep(time),
            "blpop" => self.blpop(time).ok()?,
            _ => return None,
        }
        Some(DONE)
    }

    fn blpop(&self, time: Duration) -> redis::RedisResult<()> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let mut connection = match (kept, &self.redis) {
            (Some(connection), _) => connection,
            (None, Some(redis)) => redis.get_connection()?,
            (None, None) => return Err(io::Error::other("there is no --redis").into()),
        };
        let mut command = redis::cmd("BLPOP");
        command
            .arg(NOTHING)
            .arg(time.as_secs_f64())
            .query::<Option<(String, String)>>(&mut connection)?;
        idle().push(connection);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_say_what_is_waited_for() {
        let waiting = Waiting::new(None).unwrap();
        assert_eq!(waiting.answer("/sleep/1"), Some(DONE));
        for path in ["/", "/sleep", "/sleep/", "/sleep/x", "/other/1", "/blpop/1"] {
            assert_eq!(waiting.answer(path), None, "{path}");
        }
    }
}
