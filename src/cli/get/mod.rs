//! Runs `litequic get`: HTTP/3 requests, for health checks, scripts, and debugging.

mod arguments;
mod fetch;
mod get_error;
mod output;
mod request;
mod upload;
mod values;
mod verbose;
mod write_out;

pub use arguments::GetArguments;
pub use fetch::run_get;
