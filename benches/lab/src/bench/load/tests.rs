use super::*;

const H2LOAD: &str = "\
finished in 1.25s, 3.20 req/s, 305.18MB/s
requests: 4 total, 4 started, 4 done, 4 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 4 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 381.50MB (400030000) total, 1.20KB (1230) headers (space savings 0.00%), 381.47MB (400000000) data
UDP datagram: 5000 sent, 300000 received
";

fn load(generator: Generator) -> Load {
    let amount = Amount::Requests(4);
    Load { kind: Kind::Download, body: 100_000_000, connections: 4, streams: 1, amount, generator, resume: false }
}

fn target(address: &str) -> Target<'_> {
    Target {
        address,
        kind: contender::Kind::H3,
        front: Http::Three,
        group: None,
        spki: "",
        certificate: Path::new(""),
        path: "/",
        over_a_path: false,
        mark: None,
        meter: None,
        count: false,
        crc32: None,
        upload: Path::new(""),
    }
}

#[test]
fn h2loads_text_is_read() {
    let outcome = load(Generator::H2load).outcome(contender::Kind::H3, false, H2LOAD).unwrap();
    assert_eq!((outcome.done, outcome.bytes, outcome.seconds), (4.0, 4e8, 1.25));
    assert_eq!(outcome.figures["packets_per_ack"], 60.0);
}

#[test]
fn a_truncated_answer_voids_the_run() {
    let text = H2LOAD.replace("400000000", "399999999");
    let error = load(Generator::H2load).outcome(contender::Kind::H3, false, &text).unwrap_err().to_string();
    assert_eq!(error, "399999999 of 400000000 bytes came");
}

#[test]
fn an_answer_that_is_an_error_page_voids_the_run() {
    let text = H2LOAD.replace("4 2xx, 0 3xx, 0 4xx", "3 2xx, 0 3xx, 1 4xx");
    let error = load(Generator::H2load).outcome(contender::Kind::H3, false, &text).unwrap_err().to_string();
    assert_eq!(error, "3 of 4 answers had a status of success");
}

#[test]
fn what_failed_is_counted_where_a_load_counts_it() {
    let text = H2LOAD.replace("4 2xx, 0 3xx, 0 4xx, 0 5xx", "3 2xx, 0 3xx, 0 4xx, 1 5xx");
    let outcome = load(Generator::Counting).outcome(contender::Kind::H3, false, &text).unwrap();
    assert_eq!((outcome.done, outcome.figures["failures"], outcome.figures["status_5xx"]), (3.0, 1.0, 1.0));
    assert_eq!(outcome.bytes, 4e8);
    let none = H2LOAD.replace("4 2xx, 0 3xx, 0 4xx, 0 5xx", "0 2xx, 0 3xx, 0 4xx, 4 5xx");
    assert!(load(Generator::Counting).outcome(contender::Kind::H3, false, &none).is_err());
}

#[test]
fn a_mix_requests_its_paths_in_turn() {
    let target = target("127.0.0.1:443");
    let mix = load(Generator::Mix(vec!["/a".to_owned(), "/b".to_owned()], Some(50)));
    let command = mix.command(&target, Path::new(""), Some(Path::new("h2load"))).unwrap().join(" ");
    assert!(command.starts_with("h2load --h3 -t1 -c4 -m1 -n4 "), "{command}");
    assert!(command.ends_with(" --rps=50 https://127.0.0.1:443/a https://127.0.0.1:443/b"), "{command}");
    let target = Target { front: Http::Two, ..target };
    let command = load(Generator::Counting).command(&target, Path::new(""), Some(Path::new("h2load"))).unwrap();
    assert!(!command.iter().any(|argument| argument == "--h3" || argument == "--h1"));
}

#[test]
fn a_missing_answer_voids_the_run() {
    let text = H2LOAD.replace("4 succeeded", "3 succeeded").replace("4 2xx", "3 2xx");
    assert_eq!(
        load(Generator::H2load).outcome(contender::Kind::H3, false, &text).unwrap_err().to_string(),
        "3 of 4 requests were answered"
    );
}

#[test]
fn output_that_is_no_report_is_no_outcome() {
    assert!(load(Generator::H2load).outcome(contender::Kind::H3, false, "connection refused").is_err());
    assert!(load(Generator::own("2")).outcome(contender::Kind::H3, false, "").is_err());
    assert!(load(Generator::own("2")).outcome(contender::Kind::H3, false, "{}").is_err());
}

#[test]
fn a_threshold_that_was_not_kept_voids_the_run() {
    let verify = |packets_per_ack: f64, packets: f64| {
        let figures = [("packets_per_ack", packets_per_ack), ("packets", packets)];
        let figures = figures.map(|(name, figure)| (name.to_owned(), figure)).into();
        load(Generator::own("10")).verify_threshold(&Outcome { figures, ..Outcome::default() })
    };
    assert!(verify(9.6, 3e5).is_ok() && verify(10.4, 3e5).is_ok());
    for (off, told) in [(9.4, "9.4"), (10.6, "10.6"), (2.0, "2.0")] {
        let error = verify(off, 3e5).unwrap_err().to_string();
        assert_eq!(error, format!("an ACK every {told} packets rather than every 10"));
    }
    assert!(verify(2.0, 4e3).is_ok(), "too short to tell");
}

#[test]
fn a_contender_is_left_out_beyond_what_it_bears_and_only_there() {
    let all = Contender::built_in().unwrap();
    let of = |name: &str, generator: Generator| {
        load(generator).beyond(all.iter().find(|one| one.name == name).unwrap()).map(str::to_owned)
    };
    assert!(of("envoy", Generator::own("100")).unwrap().contains("ten packets in flight"));
    assert_eq!(of("envoy", Generator::own("10")), None);
    assert_eq!(of("envoy", Generator::own("auto")), None);
    assert_eq!(of("envoy", Generator::H2load), None);
    assert_eq!(of("nginx", Generator::own("100")), None);
}

#[test]
fn the_own_generator_is_told_everything_and_warms_up_with_nothing() {
    let (certificate, upload) = (Path::new("/c"), Path::new("/u"));
    let target = Target { certificate, path: "/b100000000", crc32: Some(0xff), upload, ..target("127.0.0.1:443") };
    let command = load(Generator::own("10")).command(&target, Path::new("/lab"), None).unwrap().join(" ");
    assert_eq!(
        command,
        "/lab load download --protocol h3 --address 127.0.0.1:443 --name localhost --ca /c --connections 4 \
         --streams 1 --requests 4 --path /b100000000 --bytes 100000000 --expect-hash 000000ff --ack-threshold 10 \
         --gro on --warmup 0 --json"
    );
    let faults = Faults { lose: 1000, hold: 0 };
    let over = load(Generator::over("auto", faults)).command(&target, Path::new("/lab"), None).unwrap().join(" ");
    assert!(over.contains("--lose 1000 --hold 0 --ack-gaps"), "{over}");
    let beside = |priority| load(Generator::beside_its_own(Bulk { body: 5_000_000, priority }));
    for (priority, end, words) in [
        (None, " --json --bulk /b5000000", "; a download of 5 MB on each connection"),
        (
            Some("u=0"),
            " --json --bulk /b5000000 --priority u=0",
            "; a download of 5 MB on each connection, the others with `Priority: u=0`",
        ),
    ] {
        let command = beside(priority).command(&target, Path::new("/lab"), None).unwrap().join(" ");
        assert!(command.ends_with(end), "{command}");
        assert!(beside(priority).describe().ends_with(words), "{}", beside(priority).describe());
    }
    let h1 = load(Generator::own("10"))
        .command(&Target { kind: contender::Kind::H1, ..target }, Path::new("/lab"), None)
        .unwrap();
    assert!(!h1.iter().any(|argument| argument == "--ack-threshold"));
}

#[test]
fn without_h2load_its_cases_say_so() {
    let target = target("");
    let error = load(Generator::H2load).command(&target, Path::new(""), None).unwrap_err().to_string();
    assert_eq!(error, "h2load is not installed");
}
