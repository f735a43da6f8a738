//! What the documents say is true: links, metrics, commands, configurations, the tree. docs/configuration.md's keys are
//! tested in `config`.

use litequic::{
    app::ProcessMetrics,
    cli::{exit::Exit, reference::ReferencePage},
};
use litequic_config as config;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Every document, by its path from the root.
fn documents() -> BTreeMap<String, String> {
    let markdown = |folder: &str| {
        let entries = fs::read_dir(Path::new(ROOT).join(folder)).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect::<Vec<PathBuf>>()
    };
    [
        "",
        "docs",
        "docs/adr",
        "docs/how-to",
        "docs/reference",
        "docs/results",
        "benches/httparena",
        "benches/lab",
        "benches/lab/evidence",
        "demo",
        "packaging",
        "helm/litequic",
        "helm/litequic-sidecar",
    ]
    .into_iter()
    .flat_map(markdown)
    .map(|path| {
        let name = path.strip_prefix(ROOT).unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    })
    .collect()
}

/// The fenced blocks of a document: line, language, text.
fn blocks(text: &str) -> Vec<(usize, &str, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, &str, String)> = None;
    for (number, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(language), None) => open = Some((number + 1, language, String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some((.., block))) => *block += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    assert_eq!(open, None, "a block is not closed");
    blocks
}

/// A document without its fenced blocks and code spans.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            prose.extend(line.split('`').step_by(2));
            prose.push('\n');
        }
    }
    prose
}

/// What GitHub makes of a heading.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading = |line: &str| {
        let title = line.strip_prefix('#')?.trim_start_matches('#').trim();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
    };
    text.lines().filter_map(heading).collect()
}

#[test]
fn every_relative_link_leads_somewhere() {
    let documents = documents();
    let mut broken = Vec::new();
    let mut checked = 0;
    for (name, text) in &documents {
        let folder = Path::new(ROOT).join(name).parent().unwrap().to_owned();
        for link in prose(text).split("](").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned()) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            checked += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { Path::new(ROOT).join(name) } else { folder.join(file) };
            let found = match (target.exists(), anchor) {
                (exists, "") => exists,
                (exists, anchor) => exists && anchors(&fs::read_to_string(&target).unwrap()).contains(anchor),
            };
            if !found {
                broken.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(checked > 20, "links were found");
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn documents_and_headings_that_the_sources_name_exist() {
    let mut left = vec![Path::new(ROOT).join("src"), Path::new(ROOT).join("crates")];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for rest in text.split("docs/").skip(1) {
            let Some((name, after)) = rest.split_once(".md") else { continue };
            if !name.contains(char::is_whitespace) {
                let document = Path::new(ROOT).join(format!("docs/{name}.md"));
                assert!(document.exists(), "{}: {}", path.display(), document.display());
                let ends = |char: char| !char.is_alphanumeric() && !matches!(char, '-' | '_');
                if let Some(anchor) = after.strip_prefix('#').and_then(|rest| rest.split(ends).next()) {
                    let has = anchors(&fs::read_to_string(&document).unwrap()).contains(anchor);
                    assert!(has, "{}: {}#{anchor}", path.display(), document.display());
                }
            }
        }
    }
}

/// With a route, a server and a certificate, whose labels come with the configuration.
pub(super) fn scrape() -> String {
    ProcessMetrics::with_placeholders().registry().render_metrics()
}

/// Renewed with the environment variable `LITEQUIC_RENEW` set, or by hand with the failure's command.
#[test]
fn the_reference_is_what_the_program_says_of_itself() {
    for (page, name) in [(ReferencePage::Configuration, "configuration"), (ReferencePage::Metrics, "metrics")] {
        let (path, text) = (Path::new(ROOT).join(format!("docs/reference/{name}.md")), page.reference_text());
        if std::env::var_os("LITEQUIC_RENEW").is_some() {
            fs::write(path, text).unwrap();
            continue;
        }
        let shown = fs::read_to_string(path).unwrap();
        let differs = shown.lines().zip(text.lines()).find(|(shown, said)| shown != said);
        let renew = format!("cargo run -- reference {name} > docs/reference/{name}.md");
        assert!(shown == text, "docs/reference/{name}.md is not what it would be: {differs:?}\nrenew it: {renew}");
    }
}

/// Every key of `[limits]` and `[timeouts]`, and the bounds of an origin.
#[test]
fn every_limit_has_a_metric_that_counts_it() {
    // Not limits of clients: how long a drain goes on.
    let exempt = ["timeouts.drain_grace", "timeouts.drain"];
    let schema = config::json_schema();
    let keys = |section: &str| {
        let properties = schema["properties"][section]["properties"].as_object().unwrap();
        properties.keys().map(|key| format!("{section}.{key}")).collect::<Vec<_>>()
    };
    let bounds = ["max_connections", "max_queue", "retry_share"].map(|key| format!("origin.{key}"));
    let scrape = scrape();
    for key in keys("limits").into_iter().chain(keys("timeouts")).chain(bounds) {
        match config::limit_metric(&key) {
            Some(metric) => assert!(scrape.contains(&format!("\n{metric} ")), "{key}: {metric}"),
            None => assert!(exempt.contains(&&*key), "no metric counts when {key} bites"),
        }
    }
}

#[test]
fn metrics_that_are_spoken_of_exist() {
    let scrape = scrape();
    for (name, text) in documents() {
        // Every other piece is a code span. Packages for Debian are named so, too.
        let spans = text.split('`').skip(1).step_by(2);
        for metric in spans.filter(|span| span.starts_with("litequic_") && !span.ends_with(".deb")) {
            let known = scrape.contains(metric.split('…').next().unwrap());
            assert!(known, "{name}: {metric}");
        }
    }
}

#[test]
fn the_reference_lists_the_exit_codes() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/reference/exit-codes.md")).unwrap();
    let codes = [
        Exit::Success,
        Exit::Status,
        Exit::Usage,
        Exit::Input,
        Exit::Unavailable,
        Exit::Software,
        Exit::Output,
        Exit::Protocol,
        Exit::Config,
    ];
    for code in codes {
        assert!(page.contains(&format!("\n| {} |", code as u8)), "{code:?}");
    }
}

#[test]
fn the_reference_lists_the_answers_in_the_origins_place() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/reference/error-responses.md")).unwrap();
    let source = fs::read_to_string(Path::new(ROOT).join("crates/proxy/src/answer/error.rs")).unwrap();
    let kinds: BTreeSet<&str> =
        source.lines().filter_map(|line| line.split_once("=> (StatusCode::")?.1.split('"').nth(1)).collect();
    assert!(kinds.len() > 10, "the table was found");
    for kind in kinds {
        assert!(page.contains(&format!("| `{kind}` |")), "{kind}");
    }
}

#[test]
fn configurations_in_the_documents_are_valid() {
    let mut parsed = 0;
    for (name, text) in documents() {
        for (line, _, block) in blocks(&text).into_iter().filter(|(_, language, _)| *language == "toml") {
            let file = format!("{name}, block in line {line}");
            if let Err(faults) = config::parse_config(&block, Path::new(&file), |_| Some("x".into())) {
                panic!("{faults}");
            }
            parsed += 1;
        }
    }
    assert!(parsed > 2, "configurations were found");
}

/// Those in `sh` blocks.
#[test]
fn commands_in_the_documents_exist_with_their_options() {
    let mut helps = BTreeMap::new();
    let mut checked = 0;
    for (name, text) in documents() {
        for (_, _, block) in blocks(&text).into_iter().filter(|(_, language, _)| *language == "sh") {
            let block = block.replace("\\\n", " ");
            // The laboratory has options of its own, and `litequic` among their values.
            let invocations = block.lines().filter(|line| !line.contains("litequic-lab ")).filter_map(|line| {
                let line = line.split(" #").next()?.split(" > ").next()?;
                let (_, rest) = line.split_once("cargo run --release -- ").or_else(|| line.split_once("litequic "))?;
                (!rest.trim().is_empty()).then_some(rest)
            });
            for invocation in invocations {
                let mut words = invocation.split_whitespace();
                let command = words.next().unwrap().to_owned();
                // Each request of `ctl` has options of its own.
                let request = words.clone().next().filter(|word| command == "ctl" && !word.starts_with("--"));
                let command = request.map_or_else(|| command.clone(), |request| format!("{command} {request}"));
                let help = helps.entry(command.clone()).or_insert_with(|| help(&command));
                for option in words.filter(|word| word.starts_with("--")) {
                    let option = option.split('=').next().unwrap();
                    assert!(help.contains(option), "{name}: litequic {command} has no {option}");
                }
                checked += 1;
            }
        }
    }
    assert!(checked > 3, "commands were found");
}

/// Shells such as zsh take an address in brackets for a pattern, which matches no file.
#[test]
fn addresses_in_brackets_are_quoted_in_commands() {
    let mut wrong = Vec::new();
    for (name, text) in documents() {
        let shell = |language: &str| ["sh", "bash", "console"].contains(&language);
        let lines = blocks(&text).into_iter().filter(|(_, language, _)| shell(language));
        let lines: Vec<String> =
            lines.flat_map(|(.., block)| block.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        let spans = spans(&text).into_iter().filter(|span| span.starts_with("litequic ") || span.starts_with("curl "));
        wrong.extend(lines.into_iter().chain(spans).filter(|line| pattern(line)).map(|line| format!("{name}: {line}")));
    }
    for command in ["run", "check", "demo", "ctl", "get", "probe"] {
        // What is in a word with a quotation mark is quoted: apostrophes of the prose are in others.
        let help = help(command);
        let bare = help.split_whitespace().filter(|word| !word.contains(['\'', '"']) && pattern(word));
        wrong.extend(bare.map(|word| format!("litequic {command} --help: {word}")));
    }
    assert!(wrong.is_empty(), "addresses that shells take for patterns:\n{}", wrong.join("\n"));
    for (line, expected) in [
        ("litequic run --listen [::]:8443", true),
        ("curl https://[::1]:8443/ # [::]", true),
        ("litequic run --listen '[::]:8443' \"[::1]:1\" \\[::]", false),
        ("[ -f file ] && echo [a-z] # [::]", false),
    ] {
        assert_eq!(pattern(line), expected, "{line}");
    }
}

/// Whether an IPv6 address in brackets stands outside quotes and comments in a line of a shell's.
fn pattern(line: &str) -> bool {
    let (mut quote, mut before) = (None, ' ');
    let mut rest = line.char_indices();
    while let Some((at, c)) = rest.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\\') => _ = rest.next(),
            (None, '\'' | '"') => quote = Some(c),
            (None, '#') if before.is_whitespace() => return false,
            (None, '[') => {
                let inside = line[at + 1..].split(']').next().unwrap();
                if inside.parse::<std::net::Ipv6Addr>().is_ok() {
                    return true;
                }
            }
            (None, _) => {}
        }
        before = c;
    }
    false
}

fn help(command: &str) -> String {
    let help = Command::new(env!("CARGO_BIN_EXE_litequic")).args(command.split(' ')).arg("--help").output().unwrap();
    assert!(help.status.success(), "litequic {command} --help: {help:?}");
    String::from_utf8(help.stdout).unwrap()
}

/// The test functions of a folder's sources, as `module::name`: the path that the test program prints, from the last
/// folder or file on.
fn tests_below(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![folder.to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let module = path.strip_prefix(folder).unwrap().with_extension("");
        // `quic/src/io/mod` is `quic::io`.
        let module = module.to_str().unwrap().replace("/src/", "/").replace('/', "::");
        let module = module.trim_end_matches("::mod").trim_end_matches("::lib").trim_end_matches("::tests");
        let mut marked = false;
        for line in text.lines().map(str::trim) {
            let signature = line.trim_start_matches("async ").strip_prefix("fn ");
            match signature.and_then(|rest| rest.split_once('(')) {
                Some((name, _)) if marked => {
                    found.insert(format!("{module}::{name}").replace("::tests::", "::"));
                    marked = false;
                }
                _ => {
                    marked = line.starts_with("#[test]")
                        || line.starts_with("#[tokio::test")
                        || (marked && !line.is_empty());
                }
            }
        }
    }
    found
}

#[test]
fn the_security_model_names_tests_that_exist() {
    let text = fs::read_to_string(Path::new(ROOT).join("docs/security.md")).unwrap();
    let mut tests = tests_below(&Path::new(ROOT).join("tests/it"));
    tests.extend(["src", "crates"].iter().flat_map(|folder| tests_below(&Path::new(ROOT).join(folder))));
    let mut checked = 0;
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let Some(cell) = row.trim_end_matches(" |").rsplit(" | ").next() else { continue };
        for name in cell.split('`').skip(1).step_by(2).filter(|name| name.contains("::")) {
            let name = name.replace("::tests::", "::");
            assert!(tests.contains(&name), "docs/security.md: there is no test {name}");
            checked += 1;
        }
    }
    assert!(checked > 40, "tests were found");
}

/// The crates below `crates/`, by the names of their folders.
fn crates() -> BTreeSet<String> {
    let entries = fs::read_dir(Path::new(ROOT).join("crates")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The crates of litequic that a manifest's `[dependencies]` name, without their prefix.
fn uses(manifest: &Path) -> BTreeSet<String> {
    let manifest: toml::Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
    let names = manifest["dependencies"].as_table().unwrap().keys();
    names.filter_map(|name| name.strip_prefix("litequic-")).map(ToOwned::to_owned).collect()
}

/// Renewed with the environment variable `LITEQUIC_RENEW` set.
#[test]
fn the_architecture_lists_the_crates_and_what_they_use() {
    const MARKERS: [&str; 2] = ["<!-- crates -->\n", "<!-- /crates -->"];
    let path = Path::new(ROOT).join("docs/architecture.md");
    let text = fs::read_to_string(&path).unwrap();
    let manifest = |name: &str| Path::new(ROOT).join(format!("crates/{name}/Cargo.toml"));
    let mut left: BTreeMap<String, BTreeSet<String>> =
        crates().into_iter().map(|name| (name.clone(), uses(&manifest(&name)))).collect();
    // A crate stands below all that it uses.
    let mut rows = String::new();
    let mut above = BTreeSet::new();
    while !left.is_empty() {
        let next: Vec<String> =
            left.iter().filter(|(_, uses)| uses.is_subset(&above)).map(|(name, _)| name.clone()).collect();
        assert!(!next.is_empty(), "these use what is not below crates/: {left:?}");
        for name in next {
            let uses: Vec<String> = left.remove(&name).unwrap().iter().map(|used| format!("`{used}`")).collect();
            let uses = if uses.is_empty() { "none".to_owned() } else { uses.join(", ") };
            let about = first_sentence(&Path::new(ROOT).join(format!("crates/{name}/src/lib.rs")));
            rows += &format!("| `{name}` | {about} | {uses} |\n");
            above.insert(name);
        }
    }
    let table = format!("| crate | purpose | uses |\n|---|---|---|\n{rows}");
    let (before, rest) = text.split_once(MARKERS[0]).unwrap();
    let (shown, after) = rest.split_once(MARKERS[1]).unwrap();
    if std::env::var_os("LITEQUIC_RENEW").is_some() {
        fs::write(&path, [before, MARKERS[0], &table, MARKERS[1], after].concat()).unwrap();
    } else {
        assert_eq!(shown, table, "LITEQUIC_RENEW=1 cargo test --test text the_architecture_lists");
    }
}

/// Renewed with the environment variable `LITEQUIC_RENEW` set.
#[test]
fn the_source_tree_lists_every_folder() {
    let mut rows = BTreeMap::new();
    let mut left: Vec<PathBuf> =
        crates().into_iter().map(|name| Path::new(ROOT).join(format!("crates/{name}/src"))).collect();
    left.push(Path::new(ROOT).join("src"));
    while let Some(folder) = left.pop() {
        let entries: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        let of_tests = folder.ends_with("tests") || entries.iter().all(|entry| entry.ends_with("tests.rs"));
        let module = [folder.join("mod.rs"), folder.join("lib.rs"), folder.with_extension("rs")];
        if !of_tests && let Some(module) = module.iter().find(|module| module.is_file()) {
            rows.insert(folder.strip_prefix(ROOT).unwrap().to_owned(), first_sentence(module));
            left.extend(entries.into_iter().filter(|entry| entry.is_dir()));
        }
    }
    let rows: String = rows.iter().map(|(folder, about)| format!("| `{}/` | {about} |\n", folder.display())).collect();
    let page = format!(
        "# The source tree\n\nEvery folder of sources, with the first sentence of its documentation. \
         [Architecture](../architecture.md) is the way in.\n\n| folder | purpose |\n|---|---|\n{rows}"
    );
    let path = Path::new(ROOT).join("docs/reference/source-tree.md");
    if std::env::var_os("LITEQUIC_RENEW").is_some() {
        fs::write(&path, page).unwrap();
    } else {
        let written = fs::read_to_string(&path).unwrap();
        assert_eq!(written, page, "LITEQUIC_RENEW=1 cargo test --test text the_source_tree");
    }
}

/// The first sentence of a module's documentation, without links to items.
fn first_sentence(module: &Path) -> String {
    let text = fs::read_to_string(module).unwrap();
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let about = lines.take_while(|line| !line.is_empty()).collect::<String>().replace("[`", "`").replace("`]", "`");
    let about = about.trim();
    about.find(". ").map_or(about, |end| &about[..=end]).trim_end_matches(':').replace('|', "\\|")
}

/// The code spans of a document, without its fenced blocks.
fn spans(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut spans = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            spans.extend(line.split('`').skip(1).step_by(2).map(ToOwned::to_owned));
        }
    }
    spans
}

/// Whether `path` (`quic::io::receive`) leads from a crate, or a module of src/, to a module or an item, if its first
/// name is one of ours.
fn leads_somewhere(sources: &BTreeMap<String, String>, path: &str) -> bool {
    let names: Vec<&str> = path.split("::").collect();
    let file = |names: &[&str]| {
        let (first, rest) = names.split_first().unwrap();
        let module = rest.iter().fold(format!("crates/{first}/src"), |path, name| format!("{path}/{name}"));
        [format!("{module}.rs"), format!("{module}/mod.rs"), format!("{module}/lib.rs")]
            .into_iter()
            .chain([format!("src/{}.rs", names.join("/")), format!("src/{}/mod.rs", names.join("/"))])
            .find_map(|path| sources.get(&path))
    };
    let Some(depth) = (1..=names.len()).rev().find(|depth| file(&names[..*depth]).is_some()) else { return true };
    let text = file(&names[..depth]).unwrap();
    let words: BTreeSet<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    names[depth..].iter().all(|name| words.contains(name))
}

#[test]
fn files_and_modules_that_the_architecture_and_the_decisions_name_exist() {
    let all: BTreeMap<String, String> =
        crate::sources::read(&["src", "crates", "tests", "benches", "examples", "fuzz"]).into_iter().collect();
    let documents = documents().into_iter().filter(|(name, _)| {
        name.starts_with("docs/adr/") || ["docs/architecture.md", "CONTRIBUTING.md"].contains(&name.as_str())
    });
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':');
    for (document, text) in documents {
        for span in spans(&text) {
            for word in span.split(|c: char| !is_name(c)) {
                if word.ends_with(".rs") {
                    // A folder that is not ours is another project's.
                    let folder = word.split_once('/').map(|(folder, _)| folder);
                    let is_ours = folder.is_none_or(|folder| {
                        [folder.to_owned(), format!("src/{folder}"), format!("crates/{folder}")]
                            .iter()
                            .any(|path| Path::new(ROOT).join(path).is_dir())
                    });
                    let exists = all.keys().any(|path| path == word || path.ends_with(&format!("/{word}")));
                    assert!(exists || !is_ours, "{document}: {word} does not exist");
                } else if word.contains("::") {
                    let path = word.strip_prefix("crate::").unwrap_or(word);
                    assert!(leads_somewhere(&all, path), "{document}: {word} does not exist");
                }
            }
        }
    }
}
