//! The harness: what the benchmark programs share.
//!
//! ```text
//!  bench ─► w2, w3, … ─► comparison ─► interleave ─► (measure) ─► statistics ─► table, plot ─► report
//!                                          └─ noise: was anybody else busy?
//!  servers are measured with:  programs ─► candidate ─► server + load (ping, ask), knock, hold, drip, shake, …
//!                                                                          └─► CPU µs per operation
//!                              counting: syscalls (strace), single_step (steps), callgrind
//! ```

pub mod affinity;
pub mod answer;
pub mod ask;
pub mod behind;
pub mod buffer_ring;
pub mod callgrind;
pub mod calls;
pub mod candidate;
pub mod canned;
pub mod comparison;
pub mod counting;
pub mod cpu_clock;
pub mod crowd;
pub mod drip;
pub mod environment;
pub mod family;
pub mod h2;
pub mod h2load;
pub mod hold;
pub mod hook;
mod inside;
pub mod interleave;
pub mod knock;
pub mod listen;
pub mod load;
pub mod load_ring;
pub mod memory;
pub mod noise;
pub mod options;
pub mod pause;
pub mod plot;
pub mod pour;
pub mod programs;
pub mod proxy;
pub mod raw_epoll;
pub mod raw_http_epoll;
pub mod raw_ring;
pub mod raw_uring;
pub mod redis;
pub mod report;
pub mod request;
pub mod scratch;
pub mod server;
pub mod shake;
pub mod single_step;
pub mod slow_reader;
pub mod slowloris;
pub mod snapshot;
pub mod stage;
pub mod statistics;
pub mod syscalls;
pub mod table;
pub mod threads;
pub mod tls;
pub mod tls_client;
pub mod w1;
pub mod w10;
pub mod w11;
pub mod w12;
pub mod w13;
pub mod w14;
pub mod w2;
pub mod w3;
pub mod w4;
pub mod w5;
pub mod w6;
pub mod w7;
pub mod w8;
pub mod w9;
pub mod web;
pub mod ws_frame;
