//! The table of docs/proxying.md, "Responses that an origin may send", read once more and in the simplest way: what a
//! client gets of the bytes that an origin sends to one GET or HEAD. Not hyper's nor litequic's code, and slow.

/// Interim responses are bounded, too: so many are few enough.
const FEW_INTERIMS: usize = 90;
/// Heads, trailers and extensions near the sizes at which they are too large: their rows are exact in tests, not here.
const NEARLY_TOO_LARGE: usize = 14 * 1024;
const NEARLY_TOO_MANY: usize = 90;

/// What the client gets.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A whole response with this status and this body.
    Forwarded(u16, Vec<u8>),
    /// An error response of litequic.
    Refused,
    /// An error response, or one that never looks complete.
    BrokenOff,
    /// The table does not say.
    Open,
}
use Verdict::{BrokenOff, Forwarded, Open, Refused};

/// Why a part was not read.
enum Fault {
    /// It is not valid, or is not complete.
    Invalid,
    Open,
}

type Parsed<T> = Result<T, Fault>;

/// Fields, with names in lower case.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The verdict on `bytes`; they end with the connection if it `closes`.
pub fn verdict(bytes: &[u8], closes: bool, is_head: bool) -> Verdict {
    let mut rest = bytes;
    for _ in 0..FEW_INTERIMS {
        let (version, status, fields) = match head(&mut rest) {
            Ok(head) => head,
            Err(Fault::Invalid) => return Refused,
            Err(Fault::Open) => return Open,
        };
        if fields.iter().any(|(name, _)| name == b"proxy-status") {
            return Open;
        }
        match status {
            101 => return Refused,
            100..=199 if fields.iter().any(|(name, _)| name == b"transfer-encoding" || name == b"content-length") => {
                return Open;
            }
            100..=199 => continue,
            _ => {}
        }
        let of = |wanted: &[u8]| {
            let values = fields.iter().filter(move |(name, _)| name == wanted).map(|(_, value)| value.as_slice());
            values.collect::<Vec<_>>()
        };
        let (codings, lengths) = (of(b"transfer-encoding"), of(b"content-length"));
        if !codings.is_empty() && !lengths.is_empty() {
            return Refused;
        }
        let length = match length(&lengths) {
            Ok(length) => length,
            Err(Fault::Invalid) => return Refused,
            Err(Fault::Open) => return Open,
        };
        if is_head || status == 204 || status == 304 {
            return Forwarded(status, Vec::new());
        }
        if !codings.is_empty() {
            let [coding] = codings[..] else { return Refused };
            if version == 0 || !coding.eq_ignore_ascii_case(b"chunked") {
                return Refused;
            }
            return match chunks(rest) {
                Ok(body) => Forwarded(status, body),
                Err(Fault::Invalid) => BrokenOff,
                Err(Fault::Open) => Open,
            };
        }
        return match length {
            Some(length) => match usize::try_from(length).ok().and_then(|length| rest.get(..length)) {
                Some(body) => Forwarded(status, body.to_vec()),
                None => BrokenOff,
            },
            None if closes => Forwarded(status, rest.to_vec()),
            None => BrokenOff,
        };
    }
    Open
}

/// Minor version, status and fields of the head that `rest` begins with.
fn head(rest: &mut &[u8]) -> Parsed<(u8, u16, Fields)> {
    let whole = rest.len();
    let first = loop {
        let line = line(rest, false)?;
        if !line.is_empty() {
            break line;
        }
    };
    let (version, status) = match first {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ (b'0' | b'1'), b' ', status @ ..] => (minor - b'0', status),
        _ => return Err(Fault::Invalid),
    };
    let (digits, reason) = status.split_at_checked(3).ok_or(Fault::Invalid)?;
    let is_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    if !digits.iter().all(u8::is_ascii_digit)
        || !(reason.is_empty() || reason[0] == b' ')
        || !reason.iter().all(is_text)
    {
        return Err(Fault::Invalid);
    }
    let status = digits.iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0'));
    if status < 100 {
        return Err(Fault::Invalid);
    }
    let fields = fields(rest, false);
    if whole - rest.len() > NEARLY_TOO_LARGE {
        return Err(Fault::Open);
    }
    Ok((version, status, fields?))
}

/// The line that `rest` begins with; only of CRLF if it is `strict`, else of LF alone too.
fn line<'a>(rest: &mut &'a [u8], strict: bool) -> Parsed<&'a [u8]> {
    let end = rest.iter().position(|byte| *byte == b'\n').ok_or(if rest.len() > NEARLY_TOO_LARGE {
        Fault::Open
    } else {
        Fault::Invalid
    })?;
    let line = &rest[..end];
    *rest = &rest[end + 1..];
    let text = match (line.strip_suffix(b"\r"), strict) {
        (Some(text), _) => text,
        (None, true) => return Err(Fault::Invalid),
        (None, false) => line,
    };
    if text.contains(&b'\r') { Err(Fault::Invalid) } else { Ok(text) }
}

/// The field lines up to an empty line.
fn fields(rest: &mut &[u8], strict: bool) -> Parsed<Fields> {
    let (mut fields, mut is_valid) = (Vec::new(), true);
    loop {
        let line = line(rest, strict)?;
        if line.is_empty() {
            break;
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or(Fault::Invalid)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        let is_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
        // trim_ascii takes a form feed too.
        is_valid &= !name.is_empty() && name.iter().all(is_token) && line[colon + 1..].iter().all(is_text);
        fields.push((name.to_ascii_lowercase(), value.to_vec()));
    }
    match (is_valid, fields.len() < NEARLY_TOO_MANY) {
        (false, _) => Err(Fault::Invalid),
        (true, false) => Err(Fault::Open),
        (true, true) => Ok(fields),
    }
}

/// The one length that all `values` say.
fn length(values: &[&[u8]]) -> Parsed<Option<u64>> {
    let mut all = values.iter().flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let Some(first) = all.next() else { return Ok(None) };
    if first.is_empty() || !first.iter().all(u8::is_ascii_digit) {
        return Err(Fault::Invalid);
    }
    if !all.all(|other| other == first) {
        // As numbers they may be equal.
        let is_zero_padded = values.iter().any(|value| value.contains(&b'0'));
        return Err(if is_zero_padded { Fault::Open } else { Fault::Invalid });
    }
    let length: u64 = str::from_utf8(first).ok().and_then(|digits| digits.parse().ok()).ok_or(Fault::Invalid)?;
    if length > u64::MAX / 2 { Err(Fault::Open) } else { Ok(Some(length)) }
}

/// The body of which `rest` has the chunks.
fn chunks(mut rest: &[u8]) -> Parsed<Vec<u8>> {
    let (mut body, mut extensions) = (Vec::new(), 0);
    loop {
        let line = line(&mut rest, true)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (size, behind) = line.split_at(digits);
        let significant: Vec<u8> = size.iter().copied().skip_while(|byte| *byte == b'0').collect();
        // Blanks stand before an extension alone.
        let is_extension = behind.trim_ascii_start().first() == Some(&b';');
        let is_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
        if digits == 0 || digits > 16 || !(behind.is_empty() || is_extension) || !behind.iter().all(is_text) {
            return Err(Fault::Invalid);
        }
        extensions += behind.len();
        if extensions > NEARLY_TOO_LARGE {
            return Err(Fault::Open);
        }
        let size = str::from_utf8(&significant).ok().filter(|digits| !digits.is_empty());
        let size = size.map_or(Ok(0), |digits| u64::from_str_radix(digits, 16)).map_err(|_| Fault::Invalid)?;
        if size == 0 {
            let before = rest.len();
            let trailers = fields(&mut rest, true);
            if before - rest.len() > NEARLY_TOO_LARGE {
                return Err(Fault::Open);
            }
            return trailers.map(|_| body);
        }
        let size = usize::try_from(size).map_err(|_| Fault::Invalid)?;
        body.extend_from_slice(rest.get(..size).ok_or(Fault::Invalid)?);
        rest = rest[size..].strip_prefix(b"\r\n").ok_or(Fault::Invalid)?;
    }
}
