//! The harness: what the benchmark programs share.
//!
//! ```text
//!  bench ─► w2, w6, w7, w13 ─► interleave ─► (measure) ─► statistics ─► table, plot ─► report
//!                                  └─ noise: was anybody else busy?
//!  w2 measures with:  programs ─► candidate ─► server + load (ping) ─► CPU µs per operation
//!                                              syscalls (strace), single_step (steps), callgrind
//! ```

pub mod affinity;
pub mod buffer_ring;
pub mod callgrind;
pub mod candidate;
pub mod cpu_clock;
pub mod environment;
pub mod interleave;
pub mod listen;
pub mod load;
pub mod noise;
pub mod options;
pub mod plot;
pub mod programs;
pub mod raw_epoll;
pub mod report;
pub mod server;
pub mod single_step;
pub mod statistics;
pub mod syscalls;
pub mod table;
pub mod w13;
pub mod w2;
pub mod w6;
pub mod w7;
