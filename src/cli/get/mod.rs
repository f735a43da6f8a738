//! Runs `litequic get`: an HTTP/3 request, for health checks, scripts, and debugging.

mod arguments;
mod fetch;
mod get_error;
mod output;
mod request;
mod values;
mod verbose;

pub use arguments::GetArguments;
pub use fetch::run_get;
