//! Reads error pages and bodies of fixed responses from files, together with the configuration.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use litequic_config::{Config, ErrorPages, ErrorStatuses, RouteConfig, RouteTarget, body_media_type};
use litequic_exchange::{Body, Response, name};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::time::timeout;

/// Largest page, in bytes: each is held in memory, and sent with many responses at once.
const MAX_PAGE: u64 = 256 * 1024;
/// Bytes of an origin's error that are read when a page replaces it, so that its connection can be used again. A longer
/// error costs the connection.
const MAX_DISCARDED: usize = 64 * 1024;
/// Longest time of reading these bytes: the client waits.
const DISCARD_TIMEOUT: Duration = Duration::from_millis(250);

/// Error of a page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The file cannot be read.
    #[error("the {what} {} cannot be read: {source}", path.display())]
    Read {
        /// Error page or body file.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is larger than a page may be, probably by mistake.
    #[error("the {what} {} is larger than {} KiB", path.display(), MAX_PAGE / 1024)]
    TooLarge {
        /// Error page or body file.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
    },
}

impl PageError {
    /// Path of the file.
    pub fn page_path(&self) -> &Path {
        match self {
            Self::Read { path, .. } | Self::TooLarge { path, .. } => path,
        }
    }
}

/// A body of a fixed response or an error, with its content type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StaticPage {
    content_type: &'static str,
    body: Bytes,
}

/// Pages of a configuration, by the paths of their files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pages(BTreeMap<PathBuf, StaticPage>);

impl Pages {
    /// Reads every page that `config` names. Blocks on the file system.
    ///
    /// # Errors
    ///
    /// One error for each page that cannot be used.
    pub fn read_page_files(config: &Config) -> Result<Self, Vec<PageError>> {
        let (mut good, mut bad) = (BTreeMap::new(), Vec::new());
        for path in Self::page_files(config) {
            match read_page(&path, page_kind(config, &path)) {
                Ok(page) => drop(good.insert(path, page)),
                Err(error) => bad.push(error),
            }
        }
        if bad.is_empty() { Ok(Self(good)) } else { Err(bad) }
    }

    /// Reads the pages that `config` names again; a file that cannot be read keeps its page of `self`. Blocks on the
    /// file system.
    #[must_use]
    pub fn reload_pages(&self, config: &Config) -> Self {
        let page = |path: PathBuf| {
            let page = read_page(&path, "").ok().or_else(|| self.0.get(&path).cloned())?;
            Some((path, page))
        };
        Self(Self::page_files(config).filter_map(page).collect())
    }

    /// Paths of the files that `config` names, each once.
    pub fn page_files(config: &Config) -> impl Iterator<Item = PathBuf> {
        let routes = config.routes.iter().flat_map(|route| route.error_pages.values());
        let bodies = config.routes.iter().filter_map(body_file);
        let files: BTreeSet<_> = routes.chain(config.error_pages.values()).chain(bodies).cloned().collect();
        files.into_iter()
    }

    /// Whether `path` is the body of a fixed response in `config`.
    pub fn is_fixed_body(config: &Config, path: &Path) -> bool {
        config.routes.iter().filter_map(body_file).any(|file| file == path)
    }

    /// Paths of the files that were read `before` too, and have another content now.
    pub fn changed_files<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a PathBuf> {
        let changed = |(path, page): &(&PathBuf, &StaticPage)| before.0.get(*path).is_some_and(|old| old != *page);
        self.0.iter().filter(changed).map(|(path, _)| path)
    }

    /// The body of `route`'s fixed response, if a file has it.
    pub(crate) fn fixed_body(&self, route: &RouteConfig) -> Option<StaticPage> {
        self.0.get(body_file(route)?).cloned()
    }

    pub(crate) fn compile_pages(&self, pages: &ErrorPages) -> PageSet {
        let read = |(errors, path): (&ErrorStatuses, &PathBuf)| Some((*errors, self.0.get(path)?.clone()));
        PageSet { own: Arc::new(pages.iter().filter_map(read).collect()), ..PageSet::default() }
    }
}

fn body_file(route: &RouteConfig) -> Option<&PathBuf> {
    match &route.target {
        RouteTarget::Respond(respond) => respond.body_file_path(),
        RouteTarget::Origin(_) | RouteTarget::Redirect(_) => None,
    }
}

/// The kind of the file `path` in `config`, for messages.
fn page_kind(config: &Config, path: &Path) -> &'static str {
    if Pages::is_fixed_body(config, path) { "body file" } else { "error page" }
}

fn read_page(path: &Path, what: &'static str) -> Result<StaticPage, PageError> {
    let mut body = Vec::new();
    // One byte more tells a file that is too large from one that just fits.
    match File::open(path).and_then(|file| file.take(MAX_PAGE + 1).read_to_end(&mut body)) {
        Err(source) => Err(PageError::Read { what, path: path.to_owned(), source }),
        Ok(_) if body.len() as u64 > MAX_PAGE => Err(PageError::TooLarge { what, path: path.to_owned() }),
        Ok(_) => {
            // A checked configuration names the type of every other file.
            let content_type = body_media_type(path).unwrap_or("application/octet-stream");
            Ok(StaticPage { content_type, body: body.into() })
        }
    }
}

impl StaticPage {
    pub(crate) fn from_text(text: &str) -> Self {
        Self { content_type: "text/plain; charset=utf-8", body: Bytes::copy_from_slice(text.as_bytes()) }
    }

    /// Replaces the body of `response` by this page.
    pub(crate) fn set_page_body(&self, response: &mut Response) {
        response.body = self.body.clone().into();
        response.fields.set_field(name::CONTENT_TYPE, self.content_type.as_bytes());
        response.fields.set_number_field(name::CONTENT_LENGTH, self.body.len() as u64);
    }

    /// Turns `response` into an error with this page as its body.
    pub(crate) fn fill_error_page(&self, response: &mut Response) {
        self.set_page_body(response);
        // The error may be temporary.
        response.fields.set_field(name::CACHE_CONTROL, b"no-store");
    }

    /// Returns this page in place of an origin's `response`, with the fields that a client needs to continue:
    /// challenges, allowed methods and retry time (RFC 9110 §15.5.2, §15.5.6, §10.2.3).
    pub(crate) fn replace_response(&self, response: &Response) -> Response {
        let mut page = Response::new(response.status, Body::empty());
        for name in [name::WWW_AUTHENTICATE, name::ALLOW, name::RETRY_AFTER] {
            response.fields.all_values(name).for_each(|value| page.fields.append(name, value));
        }
        self.fill_error_page(&mut page);
        page
    }
}

/// Reads the body that a page replaces to its end, if that is near, so that the origin's connection can be used again.
pub(crate) async fn discard_body(mut body: Body) {
    let mut left = MAX_DISCARDED;
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { return };
            left = rest;
        }
    };
    // A body that is dropped before its end closes the connection.
    let _ = timeout(DISCARD_TIMEOUT, read).await;
}

/// Error pages of a route, and the general ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct PageSet {
    own: Arc<BTreeMap<ErrorStatuses, StaticPage>>,
    general: Arc<BTreeMap<ErrorStatuses, StaticPage>>,
    /// Whether the pages also replace the origin's errors.
    intercept: bool,
}

impl PageSet {
    /// Adds the pages of `general` behind those of `self`; with `intercept` all of them also replace the origin's
    /// errors.
    pub(crate) fn with_general(self, general: &Self, intercept: bool) -> Self {
        Self { own: self.own, general: Arc::clone(&general.own), intercept }
    }

    /// The page that replaces the origin's response with `status`, if there is one.
    pub(crate) fn find_intercepting(&self, status: StatusCode) -> Option<&StaticPage> {
        if self.intercept { self.find_page(status) } else { None }
    }

    /// The page for a response with `status`: the route's before the general one, and each by its number before its
    /// class.
    pub(crate) fn find_page(&self, status: StatusCode) -> Option<&StaticPage> {
        let status = status.as_u16();
        let keys = [ErrorStatuses::Status(status), ErrorStatuses::Class(status / 100)];
        [&self.own, &self.general]
            .into_iter()
            .flat_map(|pages| keys.iter().map(move |key| pages.get(key)))
            .flatten()
            .next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_exchange::FieldNameRef;
    use std::fs;

    fn page(text: &'static str) -> StaticPage {
        StaticPage { content_type: "text/plain", body: Bytes::from_static(text.as_bytes()) }
    }

    #[test]
    fn the_routes_page_comes_first_and_a_number_before_its_class() {
        let set = |pages: &[(&str, &'static str)]| PageSet {
            own: Arc::new(
                pages
                    .iter()
                    .map(|(key, text)| (ErrorStatuses::parse_error_statuses(key).unwrap(), page(text)))
                    .collect(),
            ),
            ..PageSet::default()
        };
        let general = set(&[("502", "general 502"), ("5xx", "general 5xx"), ("404", "general 404")]);
        let both = set(&[("503", "own 503"), ("4xx", "own 4xx")]).with_general(&general, true);
        for (status, expected) in [
            (503, Some("own 503")),
            (404, Some("own 4xx")),
            (429, Some("own 4xx")),
            (502, Some("general 502")),
            (504, Some("general 5xx")),
            (200, None),
            (302, None),
        ] {
            let found = both.find_page(StatusCode::from_u16(status).unwrap());
            assert_eq!(found, expected.map(page).as_ref(), "{status}");
            assert_eq!(both.find_intercepting(StatusCode::from_u16(status).unwrap()), found, "{status}");
        }
        let passing = both.with_general(&general, false);
        assert_eq!(passing.find_intercepting(StatusCode::SERVICE_UNAVAILABLE), None);
    }

    #[test]
    fn a_page_is_read_once_whole_and_of_a_bounded_size() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("fits.html"), vec![b' '; 256 * 1024]).unwrap();
        fs::write(path("large.txt"), vec![b' '; 256 * 1024 + 1]).unwrap();
        let origin = "http://origin".parse().unwrap();
        let mut config = Config::with_defaults(([127, 0, 0, 1], 0).into(), origin, "".into(), "".into());
        config.error_pages.insert(ErrorStatuses::Class(5), path("fits.html"));
        config.routes[0].error_pages.insert(ErrorStatuses::Status(404), path("fits.html"));
        let first = Pages::read_page_files(&config).unwrap();
        assert_eq!(first.0.len(), 1);
        assert_eq!(first.0[&path("fits.html")].content_type, "text/html; charset=utf-8");

        fs::write(path("fits.html"), "short").unwrap();
        let second = Pages::read_page_files(&config).unwrap();
        assert_eq!(second.changed_files(&first).collect::<Vec<_>>(), [&path("fits.html")]);
        assert_eq!(first.changed_files(&first).next(), None);

        config.error_pages.insert(ErrorStatuses::Class(4), path("large.txt"));
        config.error_pages.insert(ErrorStatuses::Status(500), path("absent.txt"));
        let messages: Vec<_> = Pages::read_page_files(&config).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(messages.len(), 2);
        assert!(messages[0].ends_with("absent.txt cannot be read: No such file or directory (os error 2)"));
        assert!(messages[1].ends_with("large.txt is larger than 256 KiB"));
    }

    #[test]
    fn of_the_origins_answer_stays_what_the_client_needs() {
        let mut response = Response::new(StatusCode::UNAUTHORIZED, Body::empty());
        for (name, value) in [
            ("www-authenticate", "Basic"),
            ("www-authenticate", "Bearer"),
            ("content-type", "image/png"),
            ("content-length", "5000"),
            ("etag", "\"a\""),
            ("server", "origin"),
        ] {
            response.fields.append(FieldNameRef::from_lower_case_token(name), value.as_bytes());
        }
        let page = page("who?").replace_response(&response);
        assert_eq!(page.status, 401);
        let mut names: Vec<_> = page.fields.iter().map(|line| line.name_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["cache-control", "content-length", "content-type", "www-authenticate", "www-authenticate"]);
        assert_eq!(page.fields.get(name::CONTENT_LENGTH), Some(&b"4"[..]));
    }
}
