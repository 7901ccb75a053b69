//! Handlers that wait, on axum and a current-thread runtime: `GET /sleep/MILLISECONDS`, `GET /blpop/MILLISECONDS`.
//!
//! They await tokio's sleep, and Redis by its client for tokio. With `--blocking` they block the thread, as
//! somebody's first handler does.
//!
//! ```text
//! cargo run --release -p axum-wait -- --listen 127.0.0.1:8080
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::routing::get;
use clap::Parser;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult};
use waiting::{DONE, NOTHING, Waiting};

#[derive(Parser)]
#[command(about = "Handlers that wait, on axum")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Wait by what blocks the thread.
    #[arg(long)]
    blocking: bool,
    /// Where Redis is: `redis://HOST:PORT/`.
    #[arg(long)]
    redis: Option<String>,
}

fn main() -> io::Result<()> {
    let Arguments { listen, blocking, redis } = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let router = if blocking {
        let waiting = Arc::new(Waiting::new(redis.as_deref())?);
        let block = async move |uri: Uri| waiting.answer(uri.path()).ok_or(StatusCode::NOT_FOUND);
        Router::new().fallback(block)
    } else {
        let redis = redis.map(Client::open).transpose().map_err(io::Error::other)?;
        Router::new()
            .route("/sleep/{milliseconds}", get(sleep))
            .route("/blpop/{milliseconds}", get(blpop))
            .with_state(Arc::new(Pool { redis, idle: Mutex::default() }))
    };
    axum_server::serve(&runtime, listen, router)
}

/// A connection waits for one thing at a time, so there are as many as there are requests.
struct Pool {
    redis: Option<Client>,
    idle: Mutex<Vec<MultiplexedConnection>>,
}

async fn sleep(Path(milliseconds): Path<u64>) -> &'static str {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    DONE
}

async fn blpop(
    State(pool): State<Arc<Pool>>,
    Path(milliseconds): Path<u64>,
) -> Result<&'static str, StatusCode> {
    let wait = pool.blpop(Duration::from_millis(milliseconds));
    wait.await.map(|()| DONE).map_err(|_| StatusCode::BAD_GATEWAY)
}

impl Pool {
    async fn blpop(&self, time: Duration) -> RedisResult<()> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let mut connection = match (kept, &self.redis) {
            (Some(connection), _) => connection,
            (None, Some(redis)) => {
                // It is slow on purpose.
                let patient = AsyncConnectionConfig::new();
                let patient = patient.set_response_timeout(None).set_connection_timeout(None);
                redis.get_multiplexed_async_connection_with_config(&patient).await?
            }
            (None, None) => return Err(io::Error::other("there is no --redis").into()),
        };
        let mut command = redis::cmd("BLPOP");
        command.arg(NOTHING).arg(time.as_secs_f64());
        command.query_async::<Option<(String, String)>>(&mut connection).await?;
        idle().push(connection);
        Ok(())
    }
}
