//! Holds the sections of manual pages that the command line's definition does not have: examples, signals, files,
//! environment, exit status, other pages.

use super::roff::{entries_section, examples_section, see_also_section};

/// Sections of a page that follow the options.
struct ManualSections {
    examples: &'static [(&'static str, &'static str)],
    signals: &'static [(&'static str, &'static str)],
    files: &'static [(&'static str, &'static str)],
    environment: &'static [(&'static str, &'static str)],
    exit: &'static [(&'static str, &'static str)],
    see_also: &'static [(&'static str, u8)],
}

/// Sections of a page without any of its own.
const DEFAULT_SECTIONS: ManualSections = ManualSections {
    examples: &[],
    signals: &[],
    files: &[],
    environment: &[],
    exit: PRINT_EXIT_CODES,
    see_also: &[("litequic", 1)],
};

/// Signals of `run` and `demo`.
const SIGNALS: &[(&str, &str)] = &[
    (
        "SIGTERM, SIGINT",
        "Drain: no new connections, requests in flight finish, then the process ends. A second one ends it at once.",
    ),
    (
        "SIGHUP",
        "Reload the configuration and all files that it names. With a fault nothing changes, and the log has every fault.",
    ),
    ("SIGUSR1", "Reopen the file of the access log, after a rotation."),
    (
        "SIGUSR2",
        "Hot upgrade: start the program again, which takes over the sockets; this process drains. Needs `admin.handover`.",
    ),
];

/// Files of an installation.
const FILES: &[(&str, &str)] = &[
    ("/etc/litequic/litequic.toml", "The configuration of the service, see `litequic.toml`(5)."),
    (
        "/run/litequic/handover.sock",
        "The socket through which a new process takes over, in the packages' configuration.",
    ),
    ("/var/log/litequic/access.log", "The usual file of the access log. Send SIGUSR1 after a rotation."),
];

/// Environment variables of programs that write a log.
const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "RUST_LOG",
        "Log levels by module, such as `info,litequic::proxy=debug`; has precedence over `log.level` and \
         `--log-level`.",
    ),
    ("NO_COLOR", "No colours on a terminal, if not empty."),
    ("LITEQUIC_CORE", "1 allows core dumps, which contain private keys, and debuggers: for bug reports."),
    ("SSLKEYLOGFILE", "The file for TLS secrets, with `--key-log`."),
    ("NOTIFY_SOCKET, WATCHDOG_USEC, LISTEN_FDS", "Set by systemd: readiness, watchdog, sockets."),
];

/// Exit codes of commands that print.
const PRINT_EXIT_CODES: &[(&str, &str)] =
    &[("0", "Success."), ("64", "The command line is invalid."), ("74", "The output cannot be written.")];

/// Sections by the name of the page.
const PAGES: &[(&str, ManualSections)] = &[
    (
        "litequic",
        ManualSections {
            examples: &[
                ("Try HTTP/3 with nothing to set up:", "litequic demo"),
                (
                    "Check a configuration, serve, and request a page over HTTP/3:",
                    "litequic check --config litequic.toml\nlitequic run --config litequic.toml\nlitequic get https://example.com/",
                ),
                ("Print the status of a running litequic:", "litequic ctl status"),
            ],
            signals: &[],
            files: FILES,
            environment: ENVIRONMENT,
            exit: &[
                ("0", "Success: drained, or stopped by a second signal."),
                ("1", "`get`: a status of 400 or above. `ctl`: a rejection."),
                ("64", "The command line, or `RUST_LOG`, is invalid."),
                ("66", "`get`: the file to send cannot be read."),
                (
                    "69",
                    "An address cannot be bound; `get`, `ctl`: a server cannot be reached, is not trusted, or is too slow.",
                ),
                ("70", "Internal error: a worker ended unexpectedly, or a thread panicked."),
                ("74", "The output of a command other than `run`, `check` and `demo` cannot be written."),
                ("76", "`get`: the server violated HTTP/3, or truncated its response."),
                ("78", "An error in the configuration, or in a file that it names."),
            ],
            see_also: &[
                ("litequic-check", 1),
                ("litequic-ctl", 1),
                ("litequic-demo", 1),
                ("litequic-get", 1),
                ("litequic-probe", 1),
                ("litequic-run", 1),
                ("litequic.toml", 5),
            ],
        },
    ),
    (
        "litequic-run",
        ManualSections {
            examples: &[
                ("Serve with a configuration file:", "litequic run --config /etc/litequic/litequic.toml"),
                (
                    "Serve one origin on all local addresses, without a configuration file:",
                    "litequic run --listen '[::]:8443' --origin http://127.0.0.1:8080 \\\n    --cert tls.crt --key tls.key",
                ),
            ],
            signals: SIGNALS,
            files: FILES,
            environment: ENVIRONMENT,
            exit: &[
                ("0", "Drained, or stopped by a second signal."),
                ("64", "The command line, or `RUST_LOG`, is invalid."),
                ("69", "An address cannot be bound."),
                ("70", "A worker did not start or ended unexpectedly, or a thread panicked."),
                ("78", "An error in the configuration, or in a file that it names."),
            ],
            see_also: &[
                ("litequic", 1),
                ("litequic-check", 1),
                ("litequic-ctl", 1),
                ("litequic.toml", 5),
                ("systemd.service", 5),
            ],
        },
    ),
    (
        "litequic-check",
        ManualSections {
            examples: &[(
                "Check a file as the user of the service, who has to read the keys:",
                "sudo -u litequic litequic check \\\n    --config /etc/litequic/litequic.toml",
            )],
            exit: &[
                ("0", "The configuration has no fault; it may have warnings."),
                ("64", "The command line is invalid."),
                ("78", "The configuration has a fault; each is printed with line and column."),
            ],
            see_also: &[("litequic", 1), ("litequic-run", 1), ("litequic.toml", 5)],
            ..DEFAULT_SECTIONS
        },
    ),
    (
        "litequic-ctl",
        ManualSections {
            examples: &[
                ("Watch a running litequic:", "litequic ctl status"),
                ("Apply a changed file, and print what changed:", "litequic ctl reload"),
            ],
            environment: &[
                ("LITEQUIC_ADMIN", "The address of the admin interface, instead of `--admin`."),
                (
                    "LITEQUIC_ADMIN_TOKEN, LITEQUIC_ADMIN_TOKEN_FILE",
                    "The token of `admin.token_file`, or a file with it.",
                ),
                ("NO_COLOR", "No colours on a terminal, if not empty."),
            ],
            exit: &[
                ("0", "Success."),
                ("1", "litequic rejected the request, for example a reload with a fault."),
                ("64", "The command line is invalid."),
                ("69", "No litequic answers at that address."),
                ("74", "The output cannot be written."),
            ],
            see_also: &[("litequic", 1), ("litequic-run", 1), ("litequic.toml", 5)],
            ..DEFAULT_SECTIONS
        },
    ),
    (
        "litequic-demo",
        ManualSections {
            examples: &[
                ("The built-in origin:", "litequic demo"),
                ("Your own server as the origin:", "litequic demo --origin http://127.0.0.1:8080"),
            ],
            signals: &[("SIGTERM, SIGINT", "End the demo.")],
            environment: ENVIRONMENT,
            exit: &[
                ("0", "Ended by a signal."),
                ("64", "The command line, or `RUST_LOG`, is invalid."),
                ("69", "The address cannot be bound."),
            ],
            see_also: &[("litequic", 1), ("litequic-get", 1), ("litequic-run", 1)],
            ..DEFAULT_SECTIONS
        },
    ),
    (
        "litequic-get",
        ManualSections {
            examples: &[
                ("Print the header of a response over HTTP/3:", "litequic get --head https://example.com/"),
                (
                    "Send a request to a server on this machine, by its public name:",
                    "litequic get --resolve example.com:443:127.0.0.1 https://example.com/",
                ),
                ("A health check:", "litequic get --head --timeout 2s https://localhost:8443/"),
            ],
            environment: &[
                ("SSL_CERT_FILE, SSL_CERT_DIR", "Certificates of authorities, instead of the system's."),
                ("SSLKEYLOGFILE", "The file for TLS secrets, with `--key-log`."),
            ],
            exit: &[
                ("0", "A status below 400."),
                ("1", "A status of 400 or above."),
                ("64", "The command line is invalid."),
                ("66", "The file to send cannot be read."),
                ("69", "The name cannot be resolved, or the server cannot be reached, is not trusted, or is too slow."),
                ("74", "The output cannot be written."),
                ("76", "The server violated HTTP/3, or truncated its response."),
            ],
            see_also: &[("litequic", 1), ("curl", 1)],
            ..DEFAULT_SECTIONS
        },
    ),
    (
        "litequic-probe",
        ManualSections {
            examples: &[("Print what this kernel supports:", "litequic probe")],
            see_also: &[("litequic", 1), ("udp", 7)],
            ..DEFAULT_SECTIONS
        },
    ),
    (
        "litequic-completions",
        ManualSections {
            examples: &[(
                "Install completions of bash for all users:",
                "litequic completions bash \\\n    >/usr/share/bash-completion/completions/litequic",
            )],
            ..DEFAULT_SECTIONS
        },
    ),
    (
        "litequic-schema",
        ManualSections {
            examples: &[(
                "Write a schema for an editor with a TOML language server:",
                "litequic schema >litequic.schema.json",
            )],
            see_also: &[("litequic", 1), ("litequic.toml", 5)],
            ..DEFAULT_SECTIONS
        },
    ),
    (
        "litequic-reference",
        ManualSections {
            examples: &[("Print every key, as Markdown:", "litequic reference configuration")],
            see_also: &[("litequic", 1), ("litequic.toml", 5)],
            ..DEFAULT_SECTIONS
        },
    ),
    (
        "litequic-manual",
        ManualSections {
            examples: &[(
                "Read a page of a program that is not installed:",
                "litequic manual --out man\nman man/litequic-run.1",
            )],
            environment: &[("SOURCE_DATE_EPOCH", "The date of the pages, in seconds since 1970, instead of today.")],
            ..DEFAULT_SECTIONS
        },
    ),
];

/// Sections of the page `name`, in the order of man\-pages(7).
pub(super) fn page_sections(name: &str) -> String {
    let sections = PAGES.iter().find(|(page, _)| *page == name).map_or(&DEFAULT_SECTIONS, |(_, sections)| sections);
    let mut text = String::new();
    for (heading, all) in [
        ("SIGNALS", sections.signals),
        ("EXIT STATUS", sections.exit),
        ("ENVIRONMENT", sections.environment),
        ("FILES", sections.files),
    ] {
        if !all.is_empty() {
            text.push_str(&entries_section(heading, all));
        }
    }
    if !sections.examples.is_empty() {
        text.push_str(&examples_section(sections.examples));
    }
    text + &see_also_section(sections.see_also)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_sections_in_order_and_an_unknown_one_defaults() {
        let page = page_sections("litequic-run");
        let places: Vec<usize> = ["SIGNALS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"]
            .map(|heading| page.find(&format!(".SH {heading}\n")).unwrap())
            .into();
        assert!(places.is_sorted(), "{page}");
        assert!(
            page_sections("litequic-new").contains(".SH EXIT STATUS\n")
                && page_sections("litequic-new").contains(".BR litequic (1)\n")
        );
    }
}
