//! Requests that are not served: what HTTP/3's rules and the proxy's refuse, and that the origin never hears of them.

use crate::support::{
    origin::Script,
    proxy::Litequic,
    raw::{self, Raw},
};

#[tokio::test]
async fn a_path_with_a_dot_segment_is_answered_400() {
    let origin = Script::new().await;
    let litequic = Litequic::start(origin.address, |_| {}).await;
    let client = Raw::to(&litequic).await;
    let outcome = client.ask(&raw::headers(&raw::pseudo("GET", "/../a"))).await;
    assert_eq!(outcome.status(), 400);
    origin.saw_nobody();
    litequic.stop().await;
}
