//! `raw-epoll`: the least an echo server can do on epoll, all in one function.
//!
//! ```text
//! cargo run --release --bin raw-epoll -- --listen 127.0.0.1:7000
//! ```

fn main() -> std::io::Result<()> {
    harness::raw_epoll::run::<false>()
}
