//! Requests that are served: what the origin gets, and what the client gets back.

use crate::support::{client::Client, origin, proxy::Litequic};

#[tokio::test]
async fn a_post_is_echoed() {
    let litequic = Litequic::start(origin::demo().await, |_| {}).await;
    let client = Client::to(&litequic).await;
    let answer = client.post("/echo", "hello").await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello"));
    litequic.stop().await;
}
