//! `raw-http-epoll`: the least a web server can do on epoll.

fn main() -> std::io::Result<()> {
    harness::raw_http_epoll::run::<false>()
}
