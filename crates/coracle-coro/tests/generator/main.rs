//! One function per fact about generators; a name begins with the row of the capability table.

mod child;
mod cost;
mod ends;
mod interleaving;
mod values;
