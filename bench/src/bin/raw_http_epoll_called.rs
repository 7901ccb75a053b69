//! `raw-http-epoll-called`: the least a web server can do on epoll, with one function call per request.

fn main() -> std::io::Result<()> {
    harness::raw_http_epoll::run::<true>()
}
