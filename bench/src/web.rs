//! The web servers that take part where a connection, and not what is said on it, is measured: nginx and hyper.
//!
//! There is no echo in nginx, and its `stream` module's `return` reads no request. So both answer a short
//! request with a short page, which is their trade; what they do more than an echo server is to read some 30
//! bytes of request and write some 150 of answer. Neither logs.

use std::num::NonZero;

use crate::candidate::{Candidate, Kind, debian_peer};
use crate::programs::{self, program};
use crate::request::BODY;

/// nginx with so many worker processes, which keep idle connections for an hour.
pub fn nginx(name: &'static str, workers: NonZero<u32>) -> Candidate {
    // With one worker there is nobody to share with.
    let reuseport = if workers.get() > 1 { " reuseport" } else { "" };
    let body = BODY.trim_end();
    let config = format!(
        "daemon off;
worker_processes {workers};
worker_rlimit_nofile 20000;
pid DIRECTORY/pid;
error_log stderr crit;
events {{ worker_connections 19500; multi_accept on; }}
http {{
  access_log off;
  keepalive_timeout 1h;
  keepalive_requests 1000000000;
  client_body_temp_path DIRECTORY/body;
  proxy_temp_path DIRECTORY/proxy;
  fastcgi_temp_path DIRECTORY/fastcgi;
  uwsgi_temp_path DIRECTORY/uwsgi;
  scgi_temp_path DIRECTORY/scgi;
  server {{
    listen LISTEN backlog=4096{reuseport};
    location / {{ return 200 '{body}\n'; }}
  }}
}}
"
    );
    debian_peer(name, "nginx").arguments(&["-e", "stderr"]).config("-c", config)
}

/// `coracle hello` on so many loops, with a coroutine for each request.
pub fn hello(name: &'static str, backend: &str, loops: u32) -> Candidate {
    let threads = loops.to_string();
    let arguments = ["hello", "--style", "coroutine", "--threads", &threads, "--backend", backend];
    Candidate::new(name, Kind::Coracle, programs::coracle()).arguments(&arguments)
}

/// nginx with one worker process, which sends the files of a directory the best way it has.
pub fn nginx_files(name: &'static str, root: &str) -> Candidate {
    let config = format!(
        "daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid DIRECTORY/pid;
error_log stderr crit;
events {{ worker_connections 19500; multi_accept on; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  tcp_nodelay on;
  open_file_cache max=1000 inactive=60s;
  open_file_cache_valid 60s;
  keepalive_timeout 1h;
  keepalive_requests 1000000000;
  client_body_temp_path DIRECTORY/body;
  proxy_temp_path DIRECTORY/proxy;
  fastcgi_temp_path DIRECTORY/fastcgi;
  uwsgi_temp_path DIRECTORY/uwsgi;
  scgi_temp_path DIRECTORY/scgi;
  server {{
    listen LISTEN backlog=4096;
    root {root};
  }}
}}
"
    );
    debian_peer(name, "nginx").arguments(&["-e", "stderr"]).config("-c", config)
}

/// hyper on tokio, with so many threads, each with a runtime and a listening socket of its own.
pub fn hyper(name: &'static str, threads: NonZero<u32>) -> Candidate {
    Candidate::new(name, Kind::Peer, program("hyper-hello"))
        .arguments(&["--threads", &threads.to_string()])
}
