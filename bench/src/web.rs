//! The web servers that take part in several works, and how they are set up: nginx, HAProxy and hyper, and
//! `coracle hello`.
//!
//! There is no echo in nginx, and its `stream` module's `return` reads no request. So where a connection, and not
//! what is said on it, is measured, they answer a short request with a short page, which is their trade; what
//! they do more than an echo server is to read some 30 bytes of request and write some 150 of answer. None of
//! them logs.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::Path;

use crate::candidate::{Candidate, Kind, debian_peer};
use crate::programs::{self, program};
use crate::request::BODY;

/// nginx with so many worker processes, which keep idle connections for an hour.
pub fn nginx(name: &'static str, workers: NonZero<u32>) -> Candidate {
    // With one worker there is nobody to share with.
    let reuseport = if workers.get() > 1 { " reuseport" } else { "" };
    nginx_serving(name, workers, &format!("listen LISTEN backlog=4096{reuseport};\n{}", page()))
}

/// nginx with one worker process, which sends the files of a directory the best way it has.
pub fn nginx_files(name: &'static str, root: &str) -> Candidate {
    let server = format!("listen LISTEN backlog=4096;\n{}", files(root));
    nginx_serving(name, NonZero::<u32>::MIN, &server)
}

/// The same by TLS 1.3 with X25519 and AES-128-GCM, and with tickets for those who come again.
pub fn nginx_tls(name: &'static str, root: &str, certificate: &Path, key: &Path) -> Candidate {
    let server = format!(
        "listen LISTEN ssl backlog=4096;
    ssl_certificate {};
    ssl_certificate_key {};
    ssl_protocols TLSv1.3;
    ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
    ssl_ecdh_curve X25519;
    ssl_session_tickets on;
    ssl_buffer_size 16k;
    {}",
        certificate.display(),
        key.display(),
        files(root)
    );
    nginx_serving(name, NonZero::<u32>::MIN, &server)
}

/// nginx with one worker process, which speaks HTTP/2 and nothing else, without TLS.
pub fn nginx_http2(name: &'static str) -> Candidate {
    let server = format!("listen LISTEN http2 backlog=4096;\n{}", page());
    nginx_serving(name, NonZero::<u32>::MIN, &server)
}

/// nginx with one worker process, as a reverse proxy that keeps so many connections to the server behind it.
pub fn nginx_proxy(name: &'static str, to: SocketAddr, keep: u32) -> Candidate {
    let http = format!(
        "upstream behind {{
    server {to};
    keepalive {keep};
    keepalive_requests 1000000000;
  }}
  server {{
    listen LISTEN backlog=4096;
    location / {{
      proxy_pass http://behind;
      proxy_http_version 1.1;
      proxy_connect_timeout 600s;
      proxy_read_timeout 600s;
      proxy_set_header Connection '';
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Forwarded-Host $http_host;
    }}
  }}"
    );
    nginx_with(name, NonZero::<u32>::MIN, &http)
}

/// HAProxy on one thread, as a reverse proxy that keeps the connections to the server behind it.
pub fn haproxy_http(name: &'static str, to: SocketAddr) -> Candidate {
    let config = format!(
        "global
  nbthread 1
  maxconn 8192
defaults
  mode http
  http-reuse always
  option forwardfor
  timeout connect 600s
  timeout client 600s
  timeout server 600s
listen proxy
  bind LISTEN
  http-request set-header X-Forwarded-Proto http
  http-request set-header X-Forwarded-Host %[req.hdr(host)]
  server behind {to}
"
    );
    debian_peer(name, "haproxy").arguments(&["-db", "-q"]).config("-f", config)
}

/// `coracle hello` on so many loops, with a coroutine for each request.
pub fn hello(name: &'static str, backend: &str, loops: u32) -> Candidate {
    let threads = loops.to_string();
    let arguments = ["hello", "--style", "coroutine", "--threads", &threads, "--backend", backend];
    Candidate::new(name, Kind::Coracle, programs::coracle()).arguments(&arguments)
}

/// hyper on tokio, with so many threads, each with a runtime and a listening socket of its own.
pub fn hyper(name: &'static str, threads: NonZero<u32>) -> Candidate {
    Candidate::new(name, Kind::Peer, program("hyper-hello"))
        .arguments(&["--threads", &threads.to_string()])
}

/// The same with HTTP/2 and nothing else, on one thread.
pub fn hyper_http2(name: &'static str) -> Candidate {
    Candidate::new(name, Kind::Peer, program("hyper-hello")).arguments(&["--http2"])
}

/// What answers with the short page.
fn page() -> String {
    format!("    location / {{ return 200 '{}\n'; }}", BODY.trim_end())
}

/// What answers with files.
fn files(root: &str) -> String {
    format!(
        "    root {root};
    sendfile on;
    tcp_nopush on;
    open_file_cache max=1000 inactive=60s;
    open_file_cache_valid 60s;"
    )
}

/// nginx with one server in it.
fn nginx_serving(name: &'static str, workers: NonZero<u32>, server: &str) -> Candidate {
    nginx_with(name, workers, &format!("server {{\n    {server}\n  }}"))
}

/// nginx with this in its `http`.
fn nginx_with(name: &'static str, workers: NonZero<u32>, http: &str) -> Candidate {
    let config = format!(
        "daemon off;
worker_processes {workers};
worker_rlimit_nofile 20000;
pid DIRECTORY/pid;
error_log stderr crit;
events {{ worker_connections 19500; multi_accept on; }}
http {{
  access_log off;
  tcp_nodelay on;
  keepalive_timeout 1h;
  keepalive_requests 1000000000;
  client_body_temp_path DIRECTORY/body;
  proxy_temp_path DIRECTORY/proxy;
  fastcgi_temp_path DIRECTORY/fastcgi;
  uwsgi_temp_path DIRECTORY/uwsgi;
  scgi_temp_path DIRECTORY/scgi;
  {http}
}}
"
    );
    debian_peer(name, "nginx").arguments(&["-e", "stderr"]).config("-c", config)
}
