//! A request that is refused by its client's address, by its password, or by the server that decides: what the client
//! gets, the line in the log, the line in the access log, and the counts.

use super::{auth::Decider, users::basic};
use crate::{reload::Setup, support::prelude::*};
use serde_json::{Value as Json, json};

fn configured(auth: SocketAddr, log: &str) -> String {
    let decided = |path: &str| {
        format!(
            "{{ path_prefix = \"{path}\", origin = \"origin\", auth = {{ origin = \"auth\", path = \"{path}\" }} }},\n"
        )
    };
    let decided: String = ["/yes", "/who", "/no", "/away", "/broken"].map(decided).concat();
    format!(
        "log.level = \"debug\"\naccess_log.path = \"{log}\"\naccess_log.fields = [\"path\", \"status\", \"auth_time\"]\n\
         origins.auth.url = \"http://{auth}\"\nroutes = [\n\
         {{ path_prefix = \"/denied\", origin = \"origin\", deny = \"127.0.0.1\" }},\n\
         {{ path_prefix = \"/allowed\", origin = \"origin\", allow = \"192.0.2.0/24\" }},\n\
         {{ path_prefix = \"/staff\", origin = \"origin\", users = \"users\" }},\n{decided}]\n"
    )
}

/// The event of the log that has this `request`.
fn event(log: &str, request: &str) -> Json {
    let mut events = log.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
    events.find(|event| event["request"] == request).unwrap_or_else(|| panic!("no {request} in {log}"))
}

#[tokio::test]
async fn each_refusal_has_its_answer_its_lines_and_its_counts() {
    let (setup, origin, auth) = (Setup::new(), Always::new(Always::EMPTY_200).await, Decider::new().await);
    fs::write(setup.path("users"), format!("alice:{}\n", bcrypt::hash("open sesame", 4).unwrap())).unwrap();
    let log = setup.path("access.log");
    let process = setup.start_with(origin.address, &configured(auth.address, &log)).await;
    let client = setup.client().await;
    let (right, wrong) = (basic("alice", "open sesame"), basic("alice", "wrong"));
    let (address, password, decides) = ("address denied", "no valid password", "the auth server denied the request");
    let cases = [
        ("/denied", None, 403, address, "DEBUG"),
        ("/allowed", None, 403, address, "DEBUG"),
        ("/staff", None, 401, password, "DEBUG"),
        ("/staff", Some(&wrong), 401, password, "DEBUG"),
        ("/who", None, 401, decides, "DEBUG"),
        ("/no", None, 403, decides, "DEBUG"),
        ("/away", None, 302, decides, "DEBUG"),
        // It has said neither yes nor no.
        ("/broken", None, 502, "the auth server's answer neither grants nor denies access", "WARN"),
    ];
    let mut requests = Vec::new();
    for (path, field, status, ..) in cases {
        let mut request = client.request(Method::GET, path);
        if let Some(field) = field {
            request = request.header("authorization", field);
        }
        let answer = client.fetch(request, "").await;
        assert_eq!(answer.status, status, "{path}");
        requests.push(answer.field("x-request-id").unwrap().to_owned());
    }
    assert_eq!(origin.connections(), 0);
    let request = client.request(Method::GET, "/staff").header("authorization", &right);
    assert_eq!(client.fetch(request, "").await.status, 200);
    assert_eq!(client.get("/yes").await.status, 200);
    for (name, count) in [
        ("route_denied_total{route=\"*/denied\",by=\"address\"}", 1),
        ("route_denied_total{route=\"*/allowed\",by=\"address\"}", 1),
        ("route_denied_total{route=\"*/staff\",by=\"password\"}", 2),
        ("route_denied_total{route=\"*/who\",by=\"auth\"}", 1),
        ("route_denied_total{route=\"*/no\",by=\"auth\"}", 1),
        ("route_denied_total{route=\"*/away\",by=\"auth\"}", 1),
        ("route_denied_total{route=\"*/broken\",by=\"auth\"}", 0),
        ("password_checks_total{result=\"right\"}", 1),
        ("password_checks_total{result=\"wrong\"}", 1),
        ("auth_requests_total{result=\"admitted\"}", 1),
        ("auth_requests_total{result=\"denied\"}", 2),
        ("auth_requests_total{result=\"redirected\"}", 1),
        ("auth_requests_total{result=\"unusable\"}", 1),
    ] {
        assert_eq!(setup.metric(&format!("litequic_{name}")).await, count, "{name}");
    }
    let ended = process.end_by("TERM");
    assert_eq!(ended.code, Some(0));
    for ((path, _, _, message, level), request) in cases.iter().zip(&requests) {
        let event = event(&ended.stderr, request);
        assert_eq!((&event["message"], &event["level"]), (&json!(message), &json!(level)), "{event}");
        match *message {
            message if message == address || message == password => {
                assert_eq!((&event["client"], &event["route"]), (&json!("127.0.0.1"), &json!(format!("*{path}"))));
            }
            message if message == decides => assert_eq!(event["route"], format!("*{path}")),
            _ => assert_eq!((&event["origin"], &event["status"]), (&json!("auth"), &json!(500))),
        }
        // What the client sent is in no line.
        assert!(!event.to_string().contains("alice"), "{event}");
    }
    let lines: Vec<Json> =
        fs::read_to_string(&log).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), cases.len() + 2);
    for ((path, _, status, ..), line) in cases.iter().zip(&lines) {
        assert_eq!((&line["path"], &line["status"]), (&json!(path), &json!(status)));
        // Requests that the server has decided about have the time that it took.
        let is_decided = ["/who", "/no", "/away", "/broken"].contains(path);
        assert_eq!(line["auth_time"].is_number(), is_decided, "{line}");
    }
}
