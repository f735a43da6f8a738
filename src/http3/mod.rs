//! HTTP/3
mod budget;
