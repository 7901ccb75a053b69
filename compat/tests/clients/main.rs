//! Blocking clients of others, unmodified, in many coroutines on one thread, on every real backend.
//!
//! No clock decides: servers answer nobody before all have asked. If one call held the thread, the others would
//! never ask, and the case would hang until it is ended. What is found here is told by
//! `docs/reference/compatibility.md`.

mod helping;
mod matrix;
mod memcache;
mod mysql;
mod postgres;
mod redis;
mod servers;
mod sqlite;
mod standard;
mod tls;
mod web;
mod websocket;
