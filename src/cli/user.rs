//! Finds the name of a user, for messages.

use std::{fs::File, io::Read};

/// File of the users of this system, one a line (passwd(5)). Users of a directory service are not in it.
const PASSWD_FILE: &str = "/etc/passwd";
/// Maximum number of bytes of the user file that are read.
const MAX_PASSWD_BYTES: u64 = 1 << 20;

/// Name of the user `number`, or the number as text.
pub(super) fn user_name(number: u32) -> String {
    let mut text = Vec::new();
    // Without the file only the number is known.
    let _ = File::open(PASSWD_FILE).map(|file| file.take(MAX_PASSWD_BYTES).read_to_end(&mut text));
    find_user_name(&String::from_utf8_lossy(&text), number)
}

fn find_user_name(users: &str, number: u32) -> String {
    let user = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then_some(name)
    });
    user.map_or_else(|| number.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_user_is_shown_by_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nwww-data:x:33:33::/:\n:x:\n";
        for (number, expected) in [(0, "root"), (33, "www-data"), (1000, "1000")] {
            assert_eq!(find_user_name(users, number), expected);
        }
        assert_eq!(user_name(0), "root");
    }
}
