//! The futures of a request, each in a box of its own.

use std::pin::Pin;

/// Puts the future that `make` returns into a box. It is made in its place, if the compiler inlines `make`: `Box::pin` copies
/// all of its memory there, some kilobytes for each request, although a future that has not begun uses little of it.
pub fn boxed<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}
