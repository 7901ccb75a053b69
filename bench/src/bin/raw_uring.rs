//! `raw-uring`: the least an echo server can do on io_uring ([`harness::raw_uring`]).
//!
//! ```text
//! cargo run --release --bin raw-uring -- --listen 127.0.0.1:7000
//! ```

fn main() -> std::io::Result<()> {
    harness::raw_uring::run::<false>()
}
