use super::*;
use serde_json::{Map, Value as Json, json};
use std::{env, fs};

/// Formats answers in JSON, as another version may have written them.
fn render(now: &Json, before: Option<&Json>, colour: bool) -> String {
    render_status(&status(now), before.map(status).as_ref(), colour, MIN_WIDTH)
}

fn status(answer: &Json) -> Status {
    serde_json::from_value(answer.clone()).unwrap_or_default()
}

/// Reads an answer of `/status` from a file. `older` was recorded, of a litequic with fewer members. The others were
/// made of it: `busy-before` and `busy` of one process, two seconds apart; `trouble` with a server that is down, HTTP/3
/// switched off, a route in maintenance, a worker that hangs, a rejected reload, limits that were reached and a
/// certificate whose renewal is overdue.
fn recorded(name: &str) -> Json {
    serde_json::from_str(&fs::read_to_string(fixture(&format!("{name}.json"))).unwrap()).unwrap()
}

fn fixture(file: &str) -> String {
    format!("{}/tests/fixtures/status/{file}", env!("CARGO_MANIFEST_DIR"))
}

/// `LITEQUIC_RENEW=1` rewrites the screens.
#[test]
fn recorded_answers_are_shown_as_recorded() {
    let screens = [
        ("busy", render(&recorded("busy"), Some(&recorded("busy-before")), false)),
        ("trouble", render(&recorded("trouble"), None, false)),
        ("older", render(&recorded("older"), None, false)),
    ];
    for (name, screen) in screens {
        let file = fixture(&format!("{name}.txt"));
        if env::var_os("LITEQUIC_RENEW").is_some() {
            fs::write(&file, &screen).unwrap();
        }
        assert_eq!(screen, fs::read_to_string(&file).unwrap_or_default(), "{name}");
        assert!(screen.lines().count() <= 40, "{name} is one screen");
    }
}

#[test]
fn missing_values_of_a_status_show_as_dashes() {
    for nothing in [json!({}), json!(null), json!([]), json!("status")] {
        let screen = render(&nothing, Some(&nothing), false);
        for expected in [
            "litequic -  -  up -\n",
            "workers 0  -  CPU -  in RAM -  open files -\n",
            "memory -  HTTP/3 -\n",
            "HTTP/3                 -              -              -           -\n",
            "limits and timeouts reached: -\n",
            "configuration -, read -\n",
            "last reload: none yet\n",
        ] {
            assert!(screen.contains(expected), "{expected:?} in\n{screen}");
        }
    }
}

/// Copies of a document in which one value each is replaced by `odd`.
fn replaced(document: &Json, odd: &Json) -> Vec<Json> {
    fn pointers(value: &Json, at: &str, found: &mut Vec<String>) {
        found.push(at.to_owned());
        let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
        match value {
            // A few of the counters are enough.
            Json::Object(members) => {
                members
                    .iter()
                    .take(40)
                    .for_each(|(key, value)| pointers(value, &format!("{at}/{}", escaped(key)), found));
            }
            Json::Array(items) => {
                items.iter().enumerate().for_each(|(n, value)| pointers(value, &format!("{at}/{n}"), found));
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    pointers(document, "", &mut all);
    let replace = |pointer: &String| {
        let mut document = document.clone();
        *document.pointer_mut(pointer).unwrap() = odd.clone();
        document
    };
    all.iter().map(replace).collect()
}

#[test]
fn no_status_makes_the_screen_panic_or_exceed_its_width() {
    let (before, mut now) = (recorded("busy-before"), recorded("trouble"));
    // Few counters, so that each is replaced.
    let few = [
        "connections",
        "requests{protocol=\"h3\"}",
        "limit_reached{limit=\"max_headers\"}",
        "requests_open",
        "route_responses{route=\"*/media\",protocol=\"h2\",class=\"4xx\"}",
        "route_response_body_bytes{route=\"*/media\"}",
    ];
    now["metrics"].as_object_mut().unwrap().retain(|key, _| few.contains(&key.as_str()));
    let odd = [
        json!(null),
        json!(true),
        json!(-1),
        json!(u64::MAX),
        json!(1e300),
        json!(-1e300),
        json!("\u{1b}[2J\r\n\t\u{7f}\u{85}".repeat(50)),
        json!("ß漢"),
        json!([]),
        json!([[], {}, null, 1, "x"]),
        json!({ "names": 1 }),
    ];
    for odd in &odd {
        for document in replaced(&now, odd) {
            for (before, colour) in [(None, false), (Some(&before), false), (Some(&document), true)] {
                let screen = render(&document, before, colour);
                for line in plain(&screen).lines() {
                    assert!(line.chars().count() <= MIN_WIDTH, "{line:?} of {odd}");
                    assert!(!line.chars().any(char::is_control), "{line:?} of {odd}");
                }
            }
        }
    }
}

/// Removes the colours.
fn plain(screen: &str) -> String {
    let mut plain = screen.to_owned();
    for tone in [Tone::Strong, Tone::Dim, Tone::Good, Tone::Warning, Tone::Bad] {
        plain = plain.replace(tone.escape_code(), "");
    }
    plain.replace("\x1b[0m", "")
}

#[test]
fn routes_in_maintenance_are_shown() {
    let status = json!({ "maintenance": [{ "target": null }, { "target": "shop", "routes": ["shop"] }] });
    assert!(render(&status, None, false).contains("\nin maintenance: all routes, shop\n"));
    assert!(!render(&json!({ "maintenance": [] }), None, false).contains("maintenance"));
}

#[test]
fn http3_is_shown_with_the_cause_of_its_state() {
    for (on, configured, expected) in [
        (json!(true), json!(true), "on"),
        (json!(true), json!(false), "on by litequic ctl"),
        (json!(false), json!(true), "off by litequic ctl"),
        (json!(false), json!(false), "off by listen.http3"),
        (json!(false), json!(null), "off"),
        (json!(null), json!(true), "-"),
    ] {
        let status = json!({ "http3": { "on": on, "configured": configured } });
        let screen = render(&status, None, false);
        assert!(screen.contains(&format!("  HTTP/3 {expected}\n")), "{expected:?} in\n{screen}");
    }
}

#[test]
fn routes_are_shown_with_their_responses_and_bytes_over_all_protocols() {
    let of = |time: f64, routes: &[(&str, u64, u64)]| {
        let mut metrics = Map::new();
        for (route, responses, bytes) in routes {
            for (protocol, class) in [("h1", "2xx"), ("h3", "5xx")] {
                let key = format!("route_responses{{route=\"{route}\",protocol=\"{protocol}\",class=\"{class}\"}}");
                metrics.insert(key, (*responses).into());
            }
            metrics.insert(format!("route_response_body_bytes{{route=\"{route}\"}}"), (*bytes).into());
        }
        json!({ "time": time, "maintenance": [{ "target": null, "routes": ["a \"shop\""] }], "metrics": metrics })
    };
    let before = of(1000.0, &[("*/", 10, 2_000_000)]);
    let now = of(1002.0, &[("*/", 30, 6_000_000), ("a _shop_", 1, 500)]);
    let screen = render(&now, Some(&before), false);
    for expected in [
        "*/                                          60      20.0      6.0 MB    2.0 MB/s\n",
        "a _shop_ (maintenance)                       2         -       500 B           -\n",
    ] {
        assert!(screen.contains(expected), "{expected:?} in\n{screen}");
    }
}

#[test]
fn many_routes_show_those_in_maintenance_or_with_most_traffic() {
    let mut metrics = Map::new();
    for n in 0..20 {
        metrics.insert(format!("route_responses{{route=\"r{n:02}\",protocol=\"h3\",class=\"2xx\"}}"), 1.into());
        metrics.insert(format!("route_response_body_bytes{{route=\"r{n:02}\"}}"), (n * 1000).into());
    }
    let status = json!({ "maintenance": [{ "target": "r03", "routes": ["r03"] }], "metrics": metrics });
    let screen = render(&status, None, false);
    let shown: Vec<&str> =
        screen.lines().filter(|line| line.starts_with('r')).filter_map(|line| line.get(..3)).collect();
    assert_eq!(shown, ["req", "rou", "r03", "r19", "r18", "r17", "r16", "r15", "r14", "r13"]);
    assert!(screen.contains("and 12 more: --json has all\n"), "{screen}");
}

#[test]
fn colour_changes_no_text() {
    let screens = [false, true].map(|colour| render(&recorded("trouble"), None, colour));
    assert!(!screens[0].contains('\x1b'));
    assert!(screens[1].contains("\x1b[31m") && screens[1].contains("\x1b[32m"));
    let trimmed = |screen: String| screen.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_eq!(trimmed(plain(&screens[1])), trimmed(screens[0].clone()));
}

#[test]
fn rates_need_two_answers_of_one_process() {
    let of = |generation: u64, uptime: f64, time: f64, requests: u64| {
        json!({
            "generation": generation, "uptime": uptime, "time": time,
            "metrics": { "requests{protocol=\"h3\"}": requests },
        })
    };
    let shown = |before: &Json, now: &Json| {
        let screen = render(now, Some(before), false);
        screen.lines().find(|line| line.starts_with("HTTP/3")).unwrap().split_whitespace().last().unwrap().to_owned()
    };
    let now = of(1, 20.0, 1000.0, 50);
    for (what, before, expected) in [
        ("two seconds before", of(1, 18.0, 998.0, 30), "10.0"),
        ("of the process before", of(0, 500.0, 998.0, 30), "-"),
        ("of one that has started anew", of(1, 500.0, 998.0, 30), "-"),
        ("at the same time", of(1, 20.0, 1000.0, 30), "-"),
        ("of a clock that was set back", of(1, 18.0, 2000.0, 30), "-"),
        ("that has counted more", of(1, 18.0, 998.0, 60), "-"),
    ] {
        assert_eq!(shown(&before, &now), expected, "{what}");
    }
}

#[test]
fn servers_with_problems_are_shown_first() {
    let server = |n: usize, problem: Json| json!({ "name": "site", "address": format!("http://192.0.2.{n}"), "checked": true, "problem": problem });
    let mut origins: Vec<Json> = (0..20).map(|n| server(n, Json::Null)).collect();
    origins.push(server(99, json!("connection refused")));
    let screen = render(&json!({ "origins": origins }), None, false);
    assert!(screen.contains("http://192.0.2.99             connection refused\n"), "{screen}");
    assert!(screen.contains("and 13 more: --json has all\n"), "{screen}");
}

#[test]
fn a_certificate_is_a_warning_once_its_renewal_is_overdue() {
    let day = 86_400.0;
    // 13 days, from day 0 on; renewed when 30 % of them are left, after 9.1 days.
    let certificate =
        CertificateStatus { expires: Some(13 * 86_400), renew_by: Some(786_240), ..CertificateStatus::default() };
    for (now, expected) in [
        (0.0, ("valid", Tone::Good)),
        (9.0, ("valid", Tone::Good)),
        (9.2, ("renewal is overdue", Tone::Warning)),
        (13.0, ("expired", Tone::Bad)),
    ] {
        let (state, tone) = certificate_validity(&certificate, Some(now * day));
        assert_eq!((state.as_str(), tone), expected, "day {now}");
    }
    assert_eq!(certificate_validity(&certificate, None).0, "-");
    let weak = CertificateStatus { warnings: vec!["is weak".into()], expires: Some(1), ..CertificateStatus::default() };
    assert_eq!(certificate_validity(&weak, Some(0.0)), ("is weak".into(), Tone::Bad));
}

#[test]
fn numbers_sizes_and_times_are_formatted_with_units() {
    for (value, expected) in [(0.0, "0"), (999.0, "999"), (1000.0, "1,000"), (-1000.0, "-1,000"), (1e7, "10,000,000")] {
        assert_eq!(count_text(Some(value)), expected);
    }
    for (value, expected) in [
        (0.0, "0 B"),
        (999.0, "999 B"),
        (999.7, "1.0 kB"),
        (1234.0, "1.2 kB"),
        (123_456.0, "123 kB"),
        (5e9, "5.0 GB"),
        (5e18, "5000000 TB"),
    ] {
        assert_eq!(bytes_text(value), expected);
    }
    for (value, expected) in [
        (-1.0, "0 s"),
        (59.9, "59 s"),
        (61.0, "1 min 1 s"),
        (3600.0, "1 h 0 min"),
        (273_600.0, "3 d 4 h"),
        (1e300, "0 s"),
    ] {
        assert_eq!(duration_text(value), expected);
    }
    for (value, expected) in [
        (Some(0.0), "-"),
        (Some(1_700_000_000.9), "2023-11-14 22:13:20 UTC"),
        (Some(253_402_300_799.0), "9999-12-31 23:59:59 UTC"),
        (Some(253_402_300_800.0), "-"),
        (Some(-5.0), "-"),
        (None, "-"),
    ] {
        assert_eq!(time_text(value), expected);
    }
}

#[test]
fn a_long_problem_is_wrapped() {
    let problem = format!("no healthy server of origin origin: {}: unknown issuer", "x".repeat(90));
    let screen = |width| Screen { text: String::new(), colour: false, width };
    let lines = screen(MIN_WIDTH).wrap_words(&problem);
    assert!(lines.len() == 3 && lines.iter().all(|line| line.chars().count() <= MIN_WIDTH - 2), "{lines:?}");
    assert_eq!(lines[0], "no healthy server of origin origin:");
    assert!(lines[2].ends_with(": unknown issuer"));
    assert_eq!(screen(MIN_WIDTH).wrap_words("one two"), ["one two"]);
    assert_eq!(screen(200).wrap_words(&problem), [problem]);
}
