//! `litequic demo`: HTTP/3 to try out on a laptop, with nothing to set up.

pub mod origin;
