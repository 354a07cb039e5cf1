//! Methods named by the end of their name.

use super::error::QueryError;

/// Most names in an error.
const LISTED: usize = 8;

/// Returns the place of `wanted` among `names`, or of the only one that ends with it after a class, such as
/// `HashMap.get`.
///
/// # Errors
/// [`QueryError::NoMethod`] and [`QueryError::SeveralMethods`], which lists the first names.
pub(super) fn named_by<'n>(
    wanted: &str,
    names: impl Iterator<Item = &'n str> + Clone,
) -> Result<usize, QueryError> {
    if let Some(place) = names.clone().position(|name| name == wanted) {
        return Ok(place);
    }
    let is_end = |name: &&str| {
        name.strip_suffix(wanted).is_some_and(|class| class.ends_with('.') || class.ends_with("::"))
    };
    let mut ends: Vec<(usize, &str)> = names.enumerate().filter(|(_, name)| is_end(name)).collect();
    match ends[..] {
        [] => Err(QueryError::NoMethod(wanted.to_owned())),
        [(place, _)] => Ok(place),
        _ => {
            let more = ends.len().saturating_sub(LISTED);
            ends.truncate(LISTED);
            let mut listed: Vec<String> = ends.into_iter().map(|(_, name)| name.to_owned()).collect();
            listed.extend((more > 0).then(|| format!("and {more} more")));
            Err(QueryError::SeveralMethods(wanted.to_owned(), listed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_its_end_names_one_method() {
        let names = ["shop.Json.parse", "shop.Xml.parse", "shop.Main.main", "parse"];
        let found = |wanted, count| named_by(wanted, names[..count].iter().copied());
        assert_eq!(found("main", 4).ok(), Some(2));
        assert_eq!(found("Xml.parse", 4).ok(), Some(1));
        assert_eq!(found("parse", 4).ok(), Some(3), "a whole name comes first");
        let error = found("parse", 3).expect_err("two").to_string();
        assert_eq!(
            error,
            r#""parse" is the end of several names; write one of them: shop.Json.parse, shop.Xml.parse"#
        );
        assert!(matches!(found("arse", 4), Err(QueryError::NoMethod(_))));
    }
}
