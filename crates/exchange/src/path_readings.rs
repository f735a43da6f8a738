//! Computes the ways in which an origin may decode a path. Pure.
//!
//! RFC 3986 §6.2.2 lets an origin decode and normalize, and origins go further: they decode twice, merge slashes,
//! remove parameters from segments, take a backslash for a slash. Each of these steps leaves a prefix of whole segments
//! a prefix. So a path that an origin reads as below a prefix, after any of these steps in any order, is below that
//! prefix after all of them: [`path_readings`] takes all. Only the end of a parameter depends on their order.

/// Whether [`path_readings`] of `path` may differ from `path` (with `ignore_case`, also in case alone). This scan runs
/// for each request whose route is not the first, so it has no branch.
pub fn may_have_readings(path: &str, ignore_case: bool) -> bool {
    let path = path.as_bytes();
    let special = |byte: &u8| matches!(byte, b'%' | b';' | b'\\') | (ignore_case & byte.is_ascii_uppercase());
    let pairs = path.iter().zip(path.iter().skip(1));
    let found =
        pairs.fold(false, |found, (first, second)| found | special(first) | ((*first == b'/') & (*second == b'/')));
    found || path.last().is_some_and(special)
}

/// Returns the readings of `path`, which has no query and which [`check_path`](super::check_path) accepts, by the
/// origin that decodes the most: percent-decoded twice, without parameters (from `;` to the segment's end, RFC 3986
/// §3.3), with one slash for any number of slashes and backslashes, up to a decoded NUL, `?` or `#`, which end the path
/// in C or for a second URL parser.
///
/// A path without `;` has one reading. Any other has one for each place at which its parameters may end, which depends
/// on the order of the steps, up to [`MAX_READINGS`]. No reading is longer than `path`, and case is unchanged.
pub fn path_readings(path: &str) -> impl Iterator<Item = Vec<u8>> {
    let path = path.as_bytes();
    let whole = percent_decode(&percent_decode(path));
    let raw = if whole.contains(&b';') { vec![path.to_vec(), without_parameters(path.to_vec())] } else { Vec::new() };
    let once = raw.into_iter().flat_map(|path| possible_decodings(&path)).flat_map(step_orders);
    let twice =
        once.flat_map(|path| possible_decodings(&path)).flat_map(|path| [path.clone(), replace_backslashes(path)]);
    let without_parameters = twice.map(|path| merge_slashes(replace_backslashes(without_parameters(path))));
    (!whole.contains(&b';')).then(|| merge_slashes(replace_backslashes(whole))).into_iter().chain(without_parameters)
}

/// Largest number of readings: parameters removed before decoding or not; `%uXXXX` decoded or not, in each of two
/// decodings; between these the five results of `step_orders`; remaining parameters ended by a backslash or not.
pub const MAX_READINGS: u8 = 2 * 2 * 5 * 2 * 2;

/// Returns `path`, decoded once, after all orders of the two steps that may come before the second decoding.
fn step_orders(path: Vec<u8>) -> Vec<Vec<u8>> {
    let mut all = vec![path];
    for step in [replace_backslashes, without_parameters, replace_backslashes] {
        let next: Vec<_> = all.iter().cloned().map(step).collect();
        for path in next {
            if !all.contains(&path) {
                all.push(path);
            }
        }
    }
    all
}

/// Returns `text`, percent-decoded once: with `%uXXXX`, and where it matters also without, as a slash in that form ends
/// no parameter.
fn possible_decodings(text: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![percent_decode(text)];
    if text.windows(2).any(|two| two.eq_ignore_ascii_case(b"%u")) {
        all.push(percent_decode_by(text, |rest| decode_first(rest, split_first_byte, false)));
    }
    all
}

fn percent_decode(text: &[u8]) -> Vec<u8> {
    percent_decode_by(text, next_decoded)
}

fn percent_decode_by(text: &[u8], next: impl Fn(&[u8]) -> Option<(u8, &[u8])>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let plain = (*first, tail);
        let (byte, tail) = if *first == b'%' { next(rest).unwrap_or(plain) } else { plain };
        out.push(byte);
        rest = tail;
    }
    out
}

/// Returns `path` without parameters: from each `;` to the next slash.
fn without_parameters(mut path: Vec<u8>) -> Vec<u8> {
    let mut within = false;
    path.retain(|byte| {
        within = *byte == b';' || (within && *byte != b'/');
        !within
    });
    path
}

fn replace_backslashes(mut path: Vec<u8>) -> Vec<u8> {
    path.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    path
}

/// Returns `path` up to [its end](is_path_end), with single slashes.
fn merge_slashes(mut path: Vec<u8>) -> Vec<u8> {
    if let Some(end) = path.iter().position(|byte| is_path_end(*byte)) {
        path.truncate(end);
    }
    path.dedup_by(|second, first| (*first, *second) == (b'/', b'/'));
    path
}

/// Whether a decoded byte ends the path for some origins: NUL for a string of C, `?` and `#` for a second URL parser.
pub(super) const fn is_path_end(byte: u8) -> bool {
    matches!(byte, 0 | b'?' | b'#')
}

/// Returns the first byte of `text`, percent-decoded once, and the rest.
pub(super) fn next_decoded(text: &[u8]) -> Option<(u8, &[u8])> {
    decode_first(text, split_first_byte, true)
}

/// Returns the first byte of `text`, percent-decoded twice, and the rest.
pub(super) fn next_decoded_twice(text: &[u8]) -> Option<(u8, &[u8])> {
    decode_first(text, next_decoded, true)
}

fn split_first_byte(text: &[u8]) -> Option<(u8, &[u8])> {
    text.split_first().map(|(byte, tail)| (*byte, tail))
}

/// Decodes the first byte of a text whose bytes `next` reads: `%` with two hexadecimal digits or, with `unicode`, `%u`
/// with four, as http.sys of Windows does. A character beyond ASCII becomes 0xff, which no prefix has. Anything else
/// stands for itself.
fn decode_first<'t>(
    text: &'t [u8],
    next: impl Fn(&'t [u8]) -> Option<(u8, &'t [u8])>,
    unicode: bool,
) -> Option<(u8, &'t [u8])> {
    let (first, rest) = next(text)?;
    if first != b'%' {
        return Some((first, rest));
    }
    let number = |text: &'t [u8], digits: u32| {
        (0..digits).try_fold((0_u32, text), |(value, text), _| {
            let (digit, text) = next(text)?;
            Some((value << 4 | char::from(digit).to_digit(16)?, text))
        })
    };
    let long = || number(next(rest).filter(|_| unicode).filter(|(byte, _)| byte.eq_ignore_ascii_case(&b'u'))?.1, 4);
    let Some((value, tail)) = number(rest, 2).or_else(long) else { return Some((first, rest)) };
    Some((u8::try_from(value).unwrap_or(u8::MAX), tail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn read(path: &str) -> BTreeSet<String> {
        path_readings(path).map(|reading| String::from_utf8_lossy(&reading).into_owned()).collect()
    }

    #[test]
    fn a_path_is_read_as_far_as_any_origin_goes() {
        for (path, expected) in [
            ("/", "/"),
            ("/v1/login", "/v1/login"),
            ("/v1/%6cogin", "/v1/login"),
            ("/v1/%6Cogin", "/v1/login"),
            ("/v1/%256cogin", "/v1/login"),
            ("/v1/%25%36%63ogin", "/v1/login"),
            ("/v1/%25256cogin", "/v1/%6cogin"),
            ("/v1/%u006cogin", "/v1/login"),
            ("/v1/%u00zzogin", "/v1/%u00zzogin"),
            ("/v1//login", "/v1/login"),
            ("//v1/login", "/v1/login"),
            ("/v1/login%2f", "/v1/login/"),
            ("/v1%2flogin", "/v1/login"),
            ("/v1%252Flogin", "/v1/login"),
            ("/v1%5clogin", "/v1/login"),
            ("/v1/%5c%5clogin", "/v1/login"),
            ("/v1/login;x", "/v1/login"),
            ("/v1;a=b/login", "/v1/login"),
            ("/v1/login%3bx", "/v1/login"),
            ("/;/v1/;x/login", "/v1/login"),
            ("/v1/login%00.png", "/v1/login"),
            ("/v1/login%3fx", "/v1/login"),
            ("/v1/login%23x", "/v1/login"),
            ("/v1/Login", "/v1/Login"),
            ("/100%", "/100%"),
            ("/%zz%2", "/%zz%2"),
            ("*", "*"),
        ] {
            assert_eq!(read(path), [expected.to_owned()].into(), "{path}");
        }
    }

    #[test]
    fn a_parameter_ends_wherever_an_origin_may_let_it() {
        for (path, expected) in [
            ("/a;b%2fc/d", &["/a/d", "/a/c/d"][..]),
            ("/a;b%252fc/d", &["/a/d", "/a/c/d"]),
            ("/a%3bb%252fc/d", &["/a/d", "/a/c/d"]),
            ("/a;b%5cc/d", &["/a/d", "/a/c/d"]),
            // An origin may know %u escapes, or not.
            ("/a;b%u002fc/d", &["/a/d", "/a/c/d"]),
            ("/%3b%u002fc/d", &["/d", "/c/d"]),
            // Parameters are removed before decoding, and again after decoding twice, but not in between.
            ("/a;y%2fz/b%3bx%252fc", &["/a/b", "/a/b/c", "/a/z/b", "/a/z/b/c"]),
            // A parameter ends at a backslash that was decoded once, and not at one that was decoded twice.
            ("/a%253bb%255cc%5cd", &["/a", "/a/d", "/a/c/d"]),
        ] {
            assert_eq!(read(path), expected.iter().map(ToString::to_string).collect(), "{path}");
        }
    }

    #[test]
    fn a_scan_finds_paths_that_have_one_reading() {
        for (path, others, with_case) in [
            ("/", false, false),
            ("/v1/login", false, false),
            ("/v1/login/", false, false),
            ("/V1", false, true),
            ("/v1//", true, true),
            ("/v1/%41", true, true),
            ("/v1;", true, true),
            ("*", false, false),
            ("", false, false),
        ] {
            assert_eq!((may_have_readings(path, false), may_have_readings(path, true)), (others, with_case), "{path}");
        }
    }

    /// One decoding step of an origin.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Decode,
        Cut,
        Backslash,
        Merge,
        End,
    }

    fn one(path: &[u8], step: Step) -> Vec<u8> {
        let mut out = path.to_vec();
        match step {
            Step::Decode => out = percent_decode(path),
            Step::Cut => out = without_parameters(out),
            Step::Backslash => out = replace_backslashes(out),
            Step::Merge => out.dedup_by(|second, first| (*first, *second) == (b'/', b'/')),
            Step::End => out.truncate(path.iter().position(|byte| is_path_end(*byte)).unwrap_or(path.len())),
        }
        out
    }

    fn is_below(path: &[u8], prefix: &[u8]) -> bool {
        path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        /// A path that an origin reads as below a prefix, after any steps in any order with at most two decodings, is
        /// below the prefix in one of the readings.
        #[test]
        fn no_origin_reads_a_prefix_that_no_reading_has(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "/", "/", "a", "b", ";", "%2f", "%5c", "%252f", "%255c", "%3b", "%253b", "%61", "%2561", "%25", "%", "2f",
                    "%00", "%3f", "%2523", "%u0061", "x",
                ]),
                0..14,
            ),
            steps in prop::collection::vec(
                prop::sample::select(vec![Step::Decode, Step::Cut, Step::Backslash, Step::Merge, Step::End]),
                0..8,
            ),
            prefix in prop::sample::select(vec!["/a", "/b", "/a/b", "/a/a", "/b/a/b"]),
        ) {
            let path = format!("/{}", pieces.concat());
            let mut decodings = 0;
            let mut seen = path.clone().into_bytes();
            for step in steps {
                decodings += u32::from(matches!(step, Step::Decode));
                if decodings <= 2 || !matches!(step, Step::Decode) {
                    seen = one(&seen, step);
                }
            }
            if is_below(&seen, prefix.as_bytes()) {
                prop_assert!(path_readings(&path).any(|reading| is_below(&reading, prefix.as_bytes())), "{path}");
            }
        }

        #[test]
        fn readings_are_few_and_short_and_a_scan_detects_them(path in "/[!-\"$->@-~]{0,40}") {
            let all: Vec<_> = path_readings(&path).collect();
            prop_assert!(all.len() <= MAX_READINGS.into() && all.iter().all(|reading| reading.len() <= path.len()));
            prop_assert!(may_have_readings(&path, false) || all == [path.into_bytes()]);
        }
    }
}
