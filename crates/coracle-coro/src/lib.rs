//! Wait without holding the thread. So far there are generators: functions that hand out values on their way.
//!
//! ```
//! use coracle_coro::Generator;
//!
//! let powers = Generator::new(|out| {
//!     let mut power = 1_u64;
//!     while power < 100 {
//!         out.suspend(power);
//!         power *= 3;
//!     }
//! });
//! assert_eq!(powers.collect::<Vec<_>>(), [1, 3, 9, 27, 81]);
//! ```

pub mod generator;

#[doc(inline)]
pub use generator::Generator;
