//! `raw-uring-proxy`: the least a proxy can do on io_uring ([`harness::raw_uring`]).
//!
//! ```text
//! cargo run --release --bin raw-uring-proxy -- --listen 127.0.0.1:7000 --to 127.0.0.1:7001
//! ```

fn main() -> std::io::Result<()> {
    harness::raw_uring::run::<true>()
}
