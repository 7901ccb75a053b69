//! A place on the loop for the layers above it: one value of each type.

use crate::Loop;
use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

/// What layers keep on a loop. There are a handful of them, so a list is searched.
#[derive(Default)]
pub(crate) struct Extensions {
    values: RefCell<Vec<Rc<dyn Any>>>,
}

impl Loop {
    /// The loop's value of type `T`; the first who asks makes it. It lives as long as the loop. Loop thread only.
    ///
    /// ```
    /// # use std::cell::Cell;
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// #[derive(Default)]
    /// struct Visits(Cell<u32>);
    ///
    /// lp.extension(Visits::default).0.set(7);
    /// assert_eq!(lp.extension(Visits::default).0.get(), 7);
    /// ```
    pub fn extension<T: 'static>(&self, make: impl FnOnce() -> T) -> Rc<T> {
        let values = &self.inner.extensions.values;
        let found = values.borrow().iter().find_map(|value| Rc::clone(value).downcast::<T>().ok());
        found.unwrap_or_else(|| {
            let value = Rc::new(make()); // nothing is borrowed: it may use the loop
            values.borrow_mut().push(Rc::clone(&value) as Rc<dyn Any>);
            value
        })
    }
}
