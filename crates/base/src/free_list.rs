//! Keeps values of a thread for reuse, instead of allocating each anew.

use std::{cell::RefCell, thread::LocalKey};

/// Values that wait for reuse.
pub type FreeList<T> = RefCell<Vec<T>>;

/// Largest number of values in a list.
const MAX_FREE: usize = 128;

/// Takes a value of `list`, if there is one.
#[inline]
pub fn take_free<T>(list: &'static LocalKey<FreeList<T>>) -> Option<T> {
    list.try_with(|free| free.borrow_mut().pop()).ok().flatten()
}

/// Keeps `value` for reuse, unless `list` is full. A thread that ends keeps nothing.
#[inline]
pub fn keep_free<T>(list: &'static LocalKey<FreeList<T>>, value: T) {
    let _ = list.try_with(|free| {
        let mut free = free.borrow_mut();
        if free.len() < MAX_FREE {
            free.push(value);
        }
    });
}
