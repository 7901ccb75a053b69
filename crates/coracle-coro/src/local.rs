//! Coroutine-local storage: each coroutine has a value of its own.

use crate::current;
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// How often what a destructor puts into the storage is destroyed, too. What is put there even then is
/// dropped with the storage itself.
const ROUNDS: usize = 4;

thread_local! {
    /// Of a plain thread, and of a loop's callbacks.
    static THREAD: Locals = Locals::default();
}

/// Declares a [`LocalKey`], as `thread_local!` does.
///
/// ```
/// use std::cell::Cell;
///
/// coracle_coro::coroutine_local! {
///     /// How deep we are.
///     static DEPTH: Cell<u32> = Cell::new(0);
/// }
///
/// coracle_coro::run(|| {
///     DEPTH.with(|depth| depth.set(7));
///     let of_child = coracle_coro::spawn(|| DEPTH.with(Cell::get)).join().unwrap();
///     assert_eq!((DEPTH.with(Cell::get), of_child), (7, 0));
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// With `inherit`, a coroutine begins with a clone of what the one that spawned it had at that time: for what
/// concerns a whole request. It must be `Clone`, and `Send`, since a coroutine may be spawned on another loop.
///
/// ```
/// use std::cell::Cell;
///
/// coracle_coro::coroutine_local! {
///     inherit static REQUEST: Cell<u64> = Cell::new(0);
/// }
///
/// coracle_coro::run(|| {
///     REQUEST.with(|request| request.set(7));
///     let child = coracle_coro::spawn(|| REQUEST.with(Cell::get));
///     assert_eq!(child.join().unwrap(), 7);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[macro_export]
macro_rules! coroutine_local {
    () => {};
    ($(#[$attribute:meta])* $visibility:vis inherit static $name:ident: $type:ty = $init:expr) => {
        $(#[$attribute])*
        $visibility static $name: $crate::LocalKey<$type> = $crate::LocalKey::inherited(|| $init);
    };
    ($(#[$attribute:meta])* $visibility:vis inherit static $name:ident: $type:ty = $init:expr; $($rest:tt)*) => {
        $crate::coroutine_local!($(#[$attribute])* $visibility inherit static $name: $type = $init);
        $crate::coroutine_local!($($rest)*);
    };
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = $init:expr) => {
        $(#[$attribute])*
        $visibility static $name: $crate::LocalKey<$type> = $crate::LocalKey::new(|| $init);
    };
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = $init:expr; $($rest:tt)*) => {
        $crate::coroutine_local!($(#[$attribute])* $visibility static $name: $type = $init);
        $crate::coroutine_local!($($rest)*);
    };
}

/// Names a value that every coroutine has its own of: made by [`coroutine_local!`](crate::coroutine_local).
///
/// It is made when it is first asked for, and dropped when the coroutine ends. Outside a coroutine, it is the
/// thread's.
pub struct LocalKey<T: 'static> {
    init: fn() -> T,
    /// How it is made out of that of the spawner, if it is.
    bequeath: Option<Bequeath>,
}

type Bequeath = fn(&dyn Any) -> Box<dyn Any + Send>;

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(init: fn() -> T) -> LocalKey<T> {
        LocalKey { init, bequeath: None }
    }

    #[doc(hidden)]
    pub const fn inherited(init: fn() -> T) -> LocalKey<T>
    where
        T: Clone + Send,
    {
        LocalKey { init, bequeath: Some(clone_of::<T>) }
    }

    /// Calls `f` with the value of whoever calls. It may wait inside.
    ///
    /// ```
    /// use std::cell::RefCell;
    ///
    /// coracle_coro::coroutine_local!(static LOG: RefCell<Vec<u32>> = RefCell::default());
    ///
    /// LOG.with(|log| log.borrow_mut().push(1));
    /// assert_eq!(LOG.with(|log| log.borrow().len()), 1);
    /// ```
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        // No two statics are in the same place.
        let place = std::ptr::from_ref(self).addr();
        let value = with_locals(|locals| locals.find(place)).unwrap_or_else(|| {
            let value = Rc::new((self.init)()); // nothing is borrowed: it may use the storage, too
            with_locals(|locals| locals.insert(Local { place, value, bequeath: self.bequeath }))
        });
        // A clone is held meanwhile: nothing that happens in `f` can take the value away.
        f(value.downcast_ref().expect("what is in its place has its type"))
    }
}

impl<T> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalKey")
    }
}

fn clone_of<T: Clone + Send + 'static>(value: &dyn Any) -> Box<dyn Any + Send> {
    let value: &T = value.downcast_ref().expect("what is in its place has its type");
    Box::new(value.clone())
}

/// The values of one coroutine. Most have none, and that should cost nothing.
#[derive(Default)]
pub(crate) struct Locals {
    values: RefCell<Option<Box<Values>>>,
}

#[derive(Clone)]
struct Local {
    /// Where its key is.
    place: usize,
    value: Rc<dyn Any>,
    bequeath: Option<Bequeath>,
}

/// A value on its way to a coroutine that inherits it.
pub(crate) struct Legacy {
    place: usize,
    value: Box<dyn Any + Send>,
    bequeath: Bequeath,
}

/// Whether whoever calls has values at all.
#[inline]
pub(crate) fn has_some() -> bool {
    current::with(|frame| match frame {
        Some(frame) => frame.extras.get().is_some_and(|extras| extras.locals.is_some()),
        None => THREAD.with(Locals::is_some),
    })
}

/// What a coroutine that is spawned now inherits from whoever calls.
pub(crate) fn bequeath() -> Vec<Legacy> {
    if !has_some() {
        return Vec::new();
    }
    let locals =
        with_locals(|locals| locals.values.borrow().as_ref().map(|values| values.0.clone()));
    // Nothing is borrowed: to clone a value is not ours.
    let legacy = |Local { place, value, bequeath }: Local| {
        bequeath.map(|bequeath| Legacy { place, value: bequeath(&*value), bequeath })
    };
    locals.into_iter().flatten().filter_map(legacy).collect()
}

/// There are a handful of them, so a list is searched.
#[derive(Default)]
struct Values(Vec<Local>);

impl Locals {
    fn is_some(&self) -> bool {
        self.values.borrow().is_some()
    }

    fn find(&self, place: usize) -> Option<Rc<dyn Any>> {
        let values = self.values.borrow();
        let mut all = values.iter().flat_map(|values| &values.0);
        all.find(|local| local.place == place).map(|local| Rc::clone(&local.value))
    }

    /// The value in this place, which is the one that is there already if the initialiser of this one has put
    /// it there.
    fn insert(&self, local: Local) -> Rc<dyn Any> {
        self.find(local.place).unwrap_or_else(|| {
            let value = Rc::clone(&local.value);
            self.values.borrow_mut().get_or_insert_default().0.push(local);
            value
        })
    }

    /// Puts in what was inherited.
    pub(crate) fn inherit(&self, legacies: Vec<Legacy>) {
        let local = |Legacy { place, value, bequeath }| {
            let value: Box<dyn Any> = value;
            Local { place, value: Rc::from(value), bequeath: Some(bequeath) }
        };
        self.values.borrow_mut().get_or_insert_default().0.extend(legacies.into_iter().map(local));
    }

    /// Drops them all. Their destructors may use the storage; a panic of theirs ends here.
    pub(crate) fn clear(&self) {
        for _ in 0..ROUNDS {
            let Some(values) = self.values.take() else { return };
            for local in values.0 {
                let _ = catch_unwind(AssertUnwindSafe(|| drop(local)));
            }
        }
    }
}

fn with_locals<R>(look: impl FnOnce(&Locals) -> R) -> R {
    current::with(|frame| match frame {
        Some(frame) => look(&frame.extras().locals),
        None => THREAD.with(look),
    })
}
