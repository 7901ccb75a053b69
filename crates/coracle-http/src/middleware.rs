//! Around an app: what is done before it is called, and with its answer.
//!
//! ```text
//!   request ──► access log ──► rate limit ──► compression ──► app
//!   answer  ◄──────────────────────────────────────────────── ┘     the first one is outermost
//! ```

mod next;

pub use next::{Around, Middleware, Next, around};
