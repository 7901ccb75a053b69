//! Who is told of connections for which there is no room.

use crate::Conn;
use std::fmt;
use std::sync::Arc;

/// Something to be called with each connection that is told that there is no room
/// ([`Settings::on_turned_away`](crate::Settings::on_turned_away)), to count it or to log it. A flood of
/// connections is a flood of calls.
///
/// ```
/// use coracle_net::{Settings, TurnedAway};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let count = Arc::new(AtomicU64::new(0));
/// let counted = Arc::clone(&count);
/// let told = TurnedAway::new(move |_| _ = counted.fetch_add(1, Ordering::Relaxed));
/// let settings = Settings {
///     limit_connections: 100,
///     busy_message: "come back later\n".into(),
///     on_turned_away: Some(told),
///     ..Settings::default()
/// };
/// # drop(settings);
/// ```
#[derive(Clone)]
pub struct TurnedAway(Arc<Callback>);

type Callback = dyn Fn(&Conn<'_>) + Send + Sync;

impl TurnedAway {
    /// Calls `callback`, on the loop of the connection. It must not wait.
    pub fn new(callback: impl Fn(&Conn<'_>) + Send + Sync + 'static) -> TurnedAway {
        TurnedAway(Arc::new(callback))
    }

    pub(crate) fn tell(&self, conn: &Conn<'_>) {
        (self.0)(conn);
    }
}

impl fmt::Debug for TurnedAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnedAway").finish_non_exhaustive()
    }
}
