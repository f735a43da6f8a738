//! The cookies of sticky sessions that one process gave are good in the next one.

use super::{Service, ended};
use crate::{drain, support::prelude::*};

#[tokio::test]
async fn session_affinity_survives_a_hot_upgrade_and_a_reload() {
    let service = Service::new().await;
    let servers = [Always::new(Always::EMPTY_200).await, Always::new(Always::EMPTY_200).await];
    let list = |order: [usize; 2]| {
        let [one, other] = order.map(|server| servers[server].address);
        format!("url = [\"http://{one}\", \"http://{other}\"]\n")
    };
    let text = fs::read_to_string(service.directory.path().join("litequic.toml")).unwrap();
    let single = text.lines().find(|line| line.starts_with("url = ")).unwrap();
    service.edit(&format!("{single}\n"), &(list([0, 1]) + "sticky = \"cookie\"\n"));
    let ask = async |cookie: Option<&str>| {
        let client = service.h3().await;
        let request = client.request(Method::GET, "/");
        let request = cookie.into_iter().fold(request, |request, cookie| request.header("cookie", cookie));
        let answer = client.fetch(request, Bytes::new()).await;
        assert_eq!(answer.status, 200);
        answer.field("set-cookie").map(|field| field.split(';').next().unwrap().to_owned())
    };
    let requests = || servers.each_ref().map(|server| server.seen().matches("GET / ").count());

    let old = service.start().await;
    let cookie = ask(None).await.expect("a cookie");
    let first = requests();
    let stays = async |what: &str| {
        let before = requests();
        for _ in 0..4 {
            assert_eq!(ask(Some(&cookie)).await, None, "{what}");
        }
        assert_eq!(requests(), [0, 1].map(|server| before[server] + 4 * first[server]), "{what}");
    };
    stays("the process that gave it").await;

    // In other places of the list.
    service.edit(&list([0, 1]), &list([1, 0]));
    let _new = service.start().await;
    ended(old).await;
    stays("the next process").await;

    service.edit(&list([1, 0]), &list([0, 1]));
    let (status, said) = drain::ask(service.admin, "POST /reload").await;
    assert_eq!(status, 200, "{said}");
    stays("after a reload").await;
}
