//! One function per fact about stacks, guards, pools and switches; a name begins with the row of the
//! capability table.

mod child;
mod overflow;
mod pool;
mod switching;
mod tools;
