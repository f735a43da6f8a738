//! Rules that change while litequic serves.

use crate::{
    reload::{Setup, saying},
    support::prelude::*,
};

async fn changed(setup: &Setup, origin: SocketAddr, more: &str) -> String {
    let (status, told) = setup.change(origin, more).await;
    assert_eq!(status, 200, "{told}");
    told
}

#[tokio::test]
async fn every_rule_follows_a_reload() {
    let (setup, origin) = (Setup::new(), saying("the origin").await);
    let process = setup.start(origin.address).await;
    let client = setup.client().await;
    fs::write(setup.path("502.html"), "<p>first").unwrap();
    let gone = origin::closed_port();
    let routes = |inner: &str| {
        format!(
            "origins.gone.url = \"http://{gone}\"\nroutes = [{{ path_prefix = \"/a\", origin = \"gone\", {inner} }}]"
        )
    };
    let first = routes("error_pages = { 502 = \"502.html\" }, response_headers.set = { x-a = \"1\" }");
    assert!(changed(&setup, origin.address, &first).await.contains("routes: + */a\n"));
    let answer = client.get("/a").await;
    assert_eq!((answer.status.as_u16(), answer.text(), answer.field("x-a")), (502, "<p>first", Some("1")));

    // Only a value, which is not shown: it may be a secret.
    let second = first.replace("\"1\"", "\"2\"");
    assert_eq!(
        changed(&setup, origin.address, &second).await,
        "routes[0].response_headers: set x-a, with other values\n"
    );
    assert_eq!(client.get("/a").await.field("x-a"), Some("2"));

    let told = changed(&setup, origin.address, &routes("rewrite_prefix = \"/b\", rate_limit = \"5/s\"")).await;
    assert!(told.contains("routes[0].rewrite_prefix: none → /b\n"), "{told}");
    assert!(told.contains("routes[0].rate_limit: none → 5/1s burst=5 by=address\n"), "{told}");
    let moved = "routes = [{ path_prefix = \"/a\", redirect = \"https://b.test{path}\", rewrite_prefix = \"/b\" }]";
    let told = changed(&setup, origin.address, moved).await;
    assert!(told.contains("routes[0].origin: gone → none\n"), "{told}");
    assert!(told.contains("routes[0].redirect: none → 307 https://b.test{path}\n"), "{told}");
    assert_eq!(client.get("/a/c").await.field("location"), Some("https://b.test/b/c"));
    drop(process);
}

#[tokio::test]
async fn a_changed_error_page_is_reloaded_and_an_unreadable_one_ignored() {
    let (setup, origin) = (Setup::new(), saying("the origin").await);
    fs::write(setup.path("404.txt"), "first").unwrap();
    let process = setup.start(origin.address).await;
    let text = "routes = [{ host = \"a.test\", origin = \"origin\" }, { path_prefix = \"/r\", origin = \"gone\" }]\n\
                origins.gone.url = \"unix:/gone\"\nerror_pages = { 502 = \"404.txt\" }";
    changed(&setup, origin.address, text).await;
    let client: Client = setup.client().await;
    assert_eq!(client.get("/r").await.text(), "first");

    // Without a request for a reload: the file is watched.
    fs::write(setup.path("404.txt"), "second").unwrap();
    process.await_stderr("404.txt renewed");
    assert_eq!(client.get("/r").await.text(), "second");

    fs::remove_file(setup.path("404.txt")).unwrap();
    let (status, told) = setup.reload().await;
    assert_eq!(status, 422);
    assert!(told.contains("404.txt cannot be read: No such file or directory"), "{told}");
    assert_eq!(client.get("/r").await.text(), "second");
}

#[tokio::test]
async fn what_a_limit_counted_outlives_a_reload_that_does_not_change_it() {
    let (setup, origin) = (Setup::new(), saying("the origin").await);
    let _process = setup.start(origin.address).await;
    let client = setup.client().await;
    let limited = |requests: u32| format!("routes = [{{ origin = \"origin\", rate_limit = \"{requests}/h\" }}]");
    changed(&setup, origin.address, &limited(1)).await;
    assert_eq!(client.get("/").await.status, 200);
    assert_eq!(
        changed(&setup, origin.address, &format!("{}\nlimits.max_headers = 98", limited(1))).await,
        "limits.max_headers: 99 → 98\n"
    );
    assert_eq!(client.get("/").await.status, 429);
    changed(&setup, origin.address, &limited(2)).await;
    assert_eq!(client.get("/").await.status, 200);
}
