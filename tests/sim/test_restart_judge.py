"""The judge of views that restarted members form (`ordercast.sim.checkers.restarts`), on histories made by hand."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.histories import History, group


def left_by_b() -> History:
    """c delivers the leave of b. a, which comes first then, does not hear of it, crashes, and is restarted."""
    history = group("b a c").view("a c", "leave", by="c", at=500).leave("b", 490, 500)
    return history.trouble("a b c", 490, 20_000).crash("a", 900).restart("a", 2_000)


def test_restarted_members_may_come_after_a_view_that_a_leaver_can_have_told_them() -> None:
    assert left_by_b().view("a+", "restart", at=5_000).restarts() == []


def test_a_leaver_that_was_gone_before_the_restart_tells_nothing() -> None:
    wrong = left_by_b().crash("b", 1_500).view("a+", "restart", at=5_000).restarts()
    assert [text.partition(":")[0] for text in wrong] == ["chain"]


def test_a_leaver_that_was_restarted_as_well_can_tell() -> None:
    assert left_by_b().crash("b", 1_500).restart("b", 1_800).view("a+", "restart", at=5_000).restarts() == []


def test_a_view_that_was_told_is_followed_by_one_view_only() -> None:
    """With the leaver's word the restarted member may go on, and then the other one may not."""
    history = left_by_b().view("a+", "restart", at=5_000).view("c", "reset", at=5_000)
    assert any(text.startswith("chain: view a c was followed by") for text in history.restarts())


def test_those_that_are_no_quorum_of_the_view_that_was_told_may_not_go_on() -> None:
    """In the view without b the first member is c."""
    history = group("b c a").view("c a", "leave", by="c", at=500).leave("b", 490, 500)
    history.trouble("a b c", 490, 20_000).crash("a", 900).restart("a", 2_000)
    assert history.view("a+", "restart", at=5_000).restarts()


def test_a_change_that_nobody_left_by_has_to_be_known_to_the_restarted_members_themselves() -> None:
    """c delivers the join of d. a and b, restarted, go on as if it had not been decided."""
    history = group("a b c").start("d", 300).view("a b c d", by="c d", at=500)
    history.trouble("a b c d", 490, 20_000).crash("a b", 900).restart("a", 2_000).restart("b", 2_000)
    assert history.view("a+ b+", "restart", at=5_000).restarts()


def without_c() -> History:
    """a and c crash. All of three are asked for, and a comes back."""
    return group("c a b", 3).trouble("a b c", 490, 20_000).crash("a c", 900).restart("a", 2_000)


def test_a_member_is_missed_that_nobody_can_have_put_out() -> None:
    wrong = without_c().restart("c", 3_000).view("b a+", "restart", at=4_000).restarts()
    assert [text for text in wrong if "not enough of its members" in text]


def test_the_number_of_a_reset_counts_where_it_was_told_of_that_view() -> None:
    def re_formed(rule: int, size: int, until: int) -> list[str]:
        return without_c().reset(rule, size, 3_500, until).view("b a+", "restart", at=4_000).restarts()

    assert re_formed(2, 2, 4_000) == []
    assert re_formed(3, 2, 4_000)  # it asked for more
    assert re_formed(2, 3, 4_000)  # it was told of another view
    assert re_formed(2, 2, 3_900)  # it was over


def test_an_expulsion_that_nobody_delivered_counts_with_the_vote_of_the_expelled() -> None:
    history = without_c().may_be_expelled("c", 600, 5_000).restart("c", 3_000)
    assert history.view("b a+", "restart", at=4_000).restarts() == []


def test_an_expulsion_without_that_vote_is_not_decided() -> None:
    history = without_c().may_be_expelled("c", 600, 5_000)
    assert history.view("b a+", "restart", at=4_000).restarts()


def test_a_member_whose_former_life_was_over_before_its_patience_was_not_expelled() -> None:
    history = without_c().may_be_expelled("c", 1_000, 5_000).restart("c", 3_000)
    assert history.view("b a+", "restart", at=4_000).restarts()


def cut_off_with_c() -> History:
    """b, which comes first of two, lets c in. a does not hear of it, c is cut off, and b crashes."""
    history = group("b a").start("c", 300).view("b c a", by="b c", at=500)
    return history.trouble("a b c", 490, 20_000).crash("b", 900).restart("b", 2_000)


def test_a_member_that_came_back_for_its_vote_alone_tells_its_last_view() -> None:
    """The application of b is out before b is back: nobody sees a view at it, and all the same it is in that view."""
    history = cut_off_with_c().leave("b+", 2_100, 2_100)
    assert history.view("a b+", "restart", by="a", at=6_000).restarts() == []


def test_without_what_it_had_kept_it_tells_nothing() -> None:
    history = cut_off_with_c().leave("b+", 2_100, 2_100)
    history.lives["b+"] = replace(history.lives["b+"], former="")
    wrong = history.view("a b+", "restart", by="a", at=6_000).restarts()
    assert [text.partition(":")[0] for text in wrong] == ["chain"]


def expelled_at_rest() -> History:
    """e puts itself out, c stores that and crashes with all others. Restarted they go on, and e is up all the while."""
    history = group("e c a b").crash("a b c", 900)
    for name in "abc":
        history.restart(name, 2_000)
    return history


def test_a_member_whose_expulsion_is_decided_by_the_view_is_not_left_behind() -> None:
    history = expelled_at_rest().may_be_expelled("e", 600, 5_000)
    assert history.view("c+ a+ b+", "restart", at=8_000).expelled("e", "e c a b", 8_010).restarts() == []


def test_a_member_that_nobody_can_have_expelled_is_left_behind() -> None:
    history = expelled_at_rest().view("c+ a+ b+", "restart", at=8_000).expelled("e", "e c a b", 8_010)
    assert [text for text in history.restarts() if "which was up and heard" in text]


def let_in_unheard() -> History:
    """a lets c in and crashes before it can say so."""
    history = History().start("a c").view("a", at=100).view("a c", by="a", at=500).crash("a", 501)
    return history.restart("a", 5_000)


def test_a_newcomer_that_went_into_another_group_unheard_is_not_left_behind() -> None:
    history = let_in_unheard().start("b").view("b", at=300).view("b c", by="b c", at=1_000)
    assert history.view("a+", "restart", at=9_000).restarts() == []


def test_a_newcomer_that_has_stayed_where_it_was_is_left_behind() -> None:
    """Also one that was in another group before."""
    for history in (let_in_unheard(), let_in_unheard().start("b").view("b c", at=300)):
        wrong = history.view("a+", "restart", at=9_000).restarts()
        assert [text for text in wrong if "without c/0, which was up and heard" in text]


def stored_by_c(stored: str, reason: str = "expel", by: str = "c") -> list[str]:
    """e may be expelled. `by` crashes with a view on its disk that no other has, and is restarted with the others."""
    history = expelled_at_rest().may_be_expelled("e", 600, 5_000).keeps(by, stored, 890, reason)
    history.view("c+ a+ b+", "restart", at=8_000).gone("e", 8_010)
    return [text for text in history.restarts() if "which was up and heard" in text]


def test_a_member_whose_expulsion_only_a_restarted_one_has_stored_is_not_left_behind() -> None:
    assert stored_by_c("c a b") == []


def test_a_stored_view_that_is_no_expulsion_of_that_member_is_no_evidence() -> None:
    assert stored_by_c("c a b", "leave")
    assert stored_by_c("e c a", "expel")  # of another one
    assert stored_by_c("c a", "expel")  # of a later view
    assert stored_by_c("c a b", "expel", by="e")  # in the folder of one that was not there


def test_an_expulsion_that_was_stored_is_no_evidence_where_nothing_gave_cause_for_it() -> None:
    history = expelled_at_rest().keeps("c", "c a b", 890, "expel").view("c+ a+ b+", "restart", at=8_000)
    assert [text for text in history.gone("e", 8_010).restarts() if "which was up and heard" in text]


def test_an_expulsion_that_its_node_has_given_up_for_another_view_is_no_evidence() -> None:
    history = expelled_at_rest().may_be_expelled("e", 600, 5_000)
    history.keeps("c", "c a b", 890, "expel").keeps("c", "e c a b", 895, "join")
    history.view("c+ a+ b+", "restart", at=8_000).gone("e", 8_010)
    assert [text for text in history.restarts() if "which was up and heard" in text]


def told_by_a(at: int, crash: int = 501) -> list[str]:
    """a lets c in and crashes. c learns of it `at` a time, and a, restarted, goes on without it."""
    history = History().start("a c").view("a", at=100).view("a c", by="a", at=500).crash("a", crash)
    history.restart("a", 6_000).view("a c", by="c", at=at)
    wrong = history.view("a+", "restart", at=9_000).gone("c", 9_010).restarts()
    return [text for text in wrong if "without c/0, which was up and heard" in text]


def test_a_newcomer_that_learned_from_a_restarted_member_that_it_is_in_is_not_left_behind() -> None:
    assert told_by_a(8_800) == []


def test_a_newcomer_that_has_been_in_for_as_long_as_it_has_to_be_waited_for_is_left_behind() -> None:
    assert told_by_a(4_400)


def test_a_newcomer_that_came_while_others_of_its_view_were_up_is_left_behind() -> None:
    """It may hold what they delivered."""
    assert told_by_a(5_000, crash=5_500)


def test_a_restarted_member_that_learns_late_that_it_is_back_is_no_newcomer() -> None:
    history = group("a c").crash("a c", 900).restart("a", 2_000).restart("c", 2_000)
    history.view("a+ c+", "restart", by="a+", at=3_000).crash("a+", 3_001).restart("a+", 8_000)
    history.view("a+ c+", "restart", by="c+", at=10_800).view("a++", "restart", at=11_000).gone("c+", 11_010)
    assert [text for text in history.restarts() if "without c/1, which was up and heard" in text]


def test_a_member_that_was_in_the_view_before_is_left_behind_however_late_it_delivers_the_next() -> None:
    """It is no newcomer: it was heard, and holds what it delivered before."""
    history = group("a c").view("a c", "lock", by="a", at=500, name="7@a/0").crash("a", 501).restart("a", 6_000)
    history.view("a c", "lock", by="c", at=8_800, name="7@a/0").view("a+", "restart", at=9_000).gone("c", 9_010)
    assert [text for text in history.restarts() if "without c/0, which was up and heard" in text]


def test_a_member_that_was_not_told_of_an_expulsion_is_left_behind() -> None:
    history = expelled_at_rest().may_be_expelled("e", 600, 5_000).view("c+ a+ b+", "restart", at=8_000)
    assert [text for text in history.gone("e", 8_010).restarts() if "which was up and heard" in text]


def let_go_by_a(creator: str) -> History:
    """`creator` grants a lock. Then a lets b go, which delivers both; a has delivered neither when it crashes."""
    history = group("b a").leave("b", 400).view("b a", "lock", by="b", at=700, name=f"7@{creator}").gone("b", 700)
    return history.crash("a", 600).restart("a", 2_000).view("a+", "restart", at=3_000)


def test_a_restarted_member_knows_the_views_that_it_has_made() -> None:
    assert let_go_by_a("a/0").restarts() == []


def test_a_view_that_a_member_made_before_it_left_for_another_group_is_not_its_last_one() -> None:
    """It was put out by a change of its own, made a group anew with another that was out, and was restarted there. The
    member that stayed in the first group was restarted as well."""
    history = History().start("a b c").view("a b c").expelled("b", "a b c", at=900)
    history.view("a", "expel", at=1000, name="8@c/0").expelled("c", "a b c", at=1001).crash("a", at=2000)
    history.view("b c", at=3000, name="9@b/0").crash("c", at=4000).restart("c", at=4500)
    history.view("b c+", "restart", at=5000).restart("a", at=6000)
    assert history.view("a+", "restart", at=6001).restarts() == []


def test_a_view_that_another_member_has_made_has_to_be_known_to_the_restarted_one() -> None:
    wrong = let_go_by_a("b/0").restarts()
    assert [text.partition(":")[0] for text in wrong] == ["chain"]


def restarted_twice() -> History:
    """All of five crash. Four come back and decide a view of four, in which three were told and crash once more: nobody
    has installed it. Two of those and the fourth go on: three of four."""
    history = group("a b c d e").trouble("a b c d e", 800, 30_000).crash("a b c d e", 900)
    for name in "abcd":
        history.restart(name, 2_000)
    history.crash("a+ b+ c+", 7_000)
    for name in ("a+", "b+"):
        history.restart(name, 8_000)
    return history


def test_a_view_that_nobody_has_installed_counts_where_it_was_stored() -> None:
    """Against the view of five, two of five would have gone on."""
    history = restarted_twice().crash("d+", 6_900)
    wrong = [text for text in history.view("a++ b++", "restart", at=12_000).restarts() if "not enough" in text]
    assert wrong
    history.keeps("a", "a+ b+ c+", 6_500).keeps("b", "a+ b+ c+", 6_600)
    assert not [text for text in history.restarts() if "not enough" in text]


def test_a_view_that_was_stored_needs_a_quorum_of_the_one_before() -> None:
    history = restarted_twice().keeps("a", "a+ b+", 6_500).keeps("b", "a+ b+", 6_600)
    wrong = history.view("a++ b++", "restart", at=12_000).restarts()
    assert [text for text in wrong if "a+ b+" in text or "not enough" in text]


def installed_by_one() -> History:
    """A view of restarted members that only one of them has installed; the others crash and form the next."""
    history = group("a b c").crash("a", 3_000).restart("a", 4_000).view("b a+ c", "restart", by="b", at=5_000)
    return history.crash("c", 6_000).crash("b", 6_500).crash("a+", 7_000).restart("a+", 7_500).restart("c", 8_000)


def test_a_view_that_one_member_has_installed_counts_at_others_that_have_stored_it() -> None:
    """They learned of it before they formed the next one, and were in none between."""
    history = installed_by_one().view("a++ c+", "restart", at=12_000)
    assert [text for text in history.restarts() if "was followed by" in text]
    history.keeps("a", "b a+ c", 9_000).keeps("c", "b a+ c", 9_100)
    assert history.restarts() == []


def test_what_was_stored_after_the_next_view_proves_nothing() -> None:
    history = restarted_twice().view("a++ b++", "restart", at=12_000)
    history.keeps("a", "a+ b+ c+", 12_500).keeps("b", "a+ b+ c+", 12_600)
    assert [text for text in history.restarts() if "not enough" in text]


def test_an_accepted_proposal_of_joins_is_no_decision() -> None:
    """Only views that recoveries made are known to be decided by their being the last view of an entry."""
    history = restarted_twice().view("a++ b++", "restart", at=12_000)
    history.keeps("a", "a+ b+ c+", 6_500, "join").keeps("b", "a+ b+ c+", 6_600, "join")
    assert [text for text in history.restarts() if "not enough" in text]
