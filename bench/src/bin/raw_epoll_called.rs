//! `raw-epoll-called`: the least an echo server can do on epoll, with one function call per message.

fn main() -> std::io::Result<()> {
    harness::raw_epoll::run::<true>()
}
