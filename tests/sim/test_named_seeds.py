"""Seeds that failed once, each for a reason of its own. They must hold."""

from __future__ import annotations

import pytest

from ordercast.sim.chance import drawn_scenario
from ordercast.sim.fuzz import run_seed
from ordercast.sim.many_groups import MANY_GROUPS
from ordercast.sim.run import run_scenario

SEEDS = (
    ("sequencer", 7_000_054),  # a join was ordered while a member lacked what stood before it
    ("sequencer", 8_000_548),  # the same, with a crash in the recovery
    ("sequencer", 7_000_165),  # a cancelled join and a short pause, and nobody may ever go on
    ("token", 7_000_107),  # a ring that had ended did not tell its former member
    ("timestamp", 7_000_035),  # a cancelled join was taken for a failure
    ("token", 10_000_072),  # an application heard of a join that it had given up
    ("timestamp", 10_000_123),  # words of a leaver were taken for those of the member that it had become again
    ("token", 10_000_262),  # own UNRELIABLE messages filled the buffers of a slow application
    ("token", 10_001_083),  # a member that was put out looked without end for a group that had ended
    (
        "token",
        32_040_054,
    ),  # a token site at rest was suspected by members that knew of a request it had not heard
    ("sites", 900_000_018),  # a part of an UNRELIABLE message that was lost kept a daemon from rest
)

OF_MEMBERSHIP = (
    ("sequencer", 1_580_004_340),  # a member did not hear that a message was safe, and its application was blamed
    ("sequencer", 1_580_017_211),  # the same, where only the sequencer's datagrams were lost
    # The sequencer forgot a leaver whose vote was needed when its node asked to join again, and what it lacked.
    ("sequencer", 1_540_015_035),
    ("sequencer", 1_110_001_043),  # a ring lacked a dead member's vote to decide its end, and did not say so
    ("timestamp", 730_015_156),  # a join was given up and ordered; cut off, that member went after 3 s and was missed
    ("timestamp", 730_016_202),  # the same: a member that wanted nothing but to vote went while another still heard it
    ("sequencer", 720_004_544),  # a word of the sequencer about a member, true of a moment, was told a second later
    ("token", 710_023_488),  # a late copy of an UNRELIABLE message came again after its sender had left and come back
    ("timestamp", 181_002_010),  # a newcomer promised a coordinator that did not know of its join, and was not invited
    ("sequencer", 171_008_127),  # a ring let a newcomer in late that had sent in another one, and waited for its vote
    ("sequencer", 171_012_675),  # a leaver that was heard again went before it could repair its leave
    ("token", 10_100_141),  # a member of a frozen ring went to a small ring that soon ended, and was missed
    ("token", 10_100_130),  # a newcomer whose join could never be decided kept others from making the group anew
    ("token", 10_100_421),  # a welcome was repeated without end to a member that had left
    ("token", 10_200_929),  # a newcomer that never was in looked for its group without end
    ("token", 10_800_479),  # a late part of what a leaver had sent was taken for a gap
    ("sequencer", 10_100_211),  # a leaver went before the sequencer knew that it had its leave
    ("sequencer", 10_100_537),  # a sequencer at rest was suspected by a member that was still busy
    ("sequencer", 10_400_043),  # a coordinator was behind a proposal that it had to repeat
    ("sequencer", 10_400_371),  # a member of a ring that had ended looked for it without end
    ("sequencer", 20_000_438),  # members at rest did not look for the change that a leaver asked them about
    ("sequencer", 90_002_618),  # a member whose ring was to end gave it up while the other needed its vote
    ("sequencer", 90_003_885),  # a newcomer that had not heard its welcome was not told in a recovery after a leave
    ("token", 90_003_520),  # the judge forgot that a group stays failed until a reset
    ("token", 110_000_737),  # a coordinator forgot a newcomer that only a member which then left had named
    ("timestamp", 160_000_038),  # chance lost four heartbeats in a row, and nobody asked
    ("sequencer", 150_008_730),  # members that had left and come back did not know how an old ring had ended
    ("timestamp", 140_009_533),  # a late part of what a leaver had sent was waited for without end
    ("sequencer", 140_004_944),  # a leaver that a quorum had answered went before the sequencer knew of it
    ("sequencer", 90_005_962),  # a view on the way through a recovery named a dead member behind a RESILIENT message
    ("token", 130_001_411),  # a late request let a newcomer in that had come and left
    ("token", 90_008_722),  # a newcomer did not take the late welcome of a ring that it had asked in an earlier search
    ("timestamp", 120_000_145),  # the judge forgot when a member that changed its mind had first asked to leave
    ("token", 90_003_555),  # an answer of seconds ago was taken for that of a member that is there
    ("timestamp", 91_001_525),  # two parts were re-formed by reset("majority")
    ("sequencer", 60_000_926),  # a member that was put out looked without end for a group whose end nobody told it
    ("sequencer", 40_000_761),  # a newcomer asked two rings at once, and both let it in
    ("sequencer", 20_010_462),  # two members took each other's answers to a withdrawn join for requests, without end
    ("sequencer", 20_000_935),  # the judge took a leave from another chain for the one that counted
    ("timestamp", 20_001_443),  # the same, with a join that was given up
    ("timestamp", 40_000_197),  # the answer of a leaver to an invitation was lost, and it was not invited again in time
    ("token", 15_000_259),  # one of two parts confirmed what the other never got
    ("timestamp", 10_700_424),  # a newcomer that was let in and did not hear it made a group of its own
    ("timestamp", 10_800_835),  # two members at rest answered each other without end
)

OF_PATIENCE = (
    ("token", 152_000_260),  # the judge did not see that a member left a failed group, which then went on with it
    ("sequencer", 152_000_917),  # resets gave up before members that were far away could answer
    ("timestamp", 780_000_585),  # a coordinator missed members whose answers were on their way
    ("token", 780_000_571),  # two lost welcomes were enough for a recovery
    ("sequencer", 930_002_209),  # a sequencer at rest was suspected by a member that lacked its last word
)

# They failed when the profile drew more folders that are lost.
STOOD_STILL = (
    ("token", 1_400_000_020),  # a leaver of a frozen ring gave up after 3 s, and the others needed its vote
    ("timestamp", 1_400_000_161),  # the same, with two leavers
    ("token", 1_400_000_217),  # a restarted member was to leave before it was back, and took its vote along
    ("token", 1_400_000_257),  # the same, and it crashed in that moment: its folder had forgotten everything
    ("timestamp", 1_400_000_324),  # a member that had left went after 3 s; the other one was cut off for 7
    ("sequencer", 1_400_000_284),  # a group that had gone on ended in the ring of a member that it had left behind
)

OF_ENDURANCE = (
    # In a group of two a late copy of a pass was answered with a pass, and that with another one, without an end.
    ("token", 7_100_013_400),
    # The judge missed a newcomer that a restarted member had told only just before that it was in.
    ("sequencer", 7_100_017_244),
    ("timestamp", 7_100_017_375),  # the judge missed a member whose expulsion only a restarted one had stored
    # Members waited for answers to a question of a sequencer that was out. One that had come in since was suspected.
    ("sequencer", 7_100_013_706),
    # A coordinator that counted on the answer of a former life said nothing to the next one, and was missed.
    ("token", 7_100_012_501),
    # The judge did not see that members which came back for their votes had stored a view that another one installed.
    ("sequencer", 7_100_003_093),
    # The judge did not see that a partition kept a member from letting in a newcomer.
    ("sequencer", 5_300_011_060),
    # The judge did not see that a restarted member waits for a view that let its former life in and nobody installed.
    ("token", 2_700_006_546),
    # A coordinator that had the promise of a former life said nothing to the next one, and was missed.
    ("token", 1_820_002_734),
    # Members that waited for the coordinator which a restarted one had been were heard, and missed.
    ("timestamp", 1_820_018_983),
    ("token", 1_820_007_598),  # a survivor was to go on behind blocks that only a restarted member had ordered
    # The judge did not see that a member which had come back for its vote alone knew the view before.
    ("token", 1_820_006_589),
    # The judge forgot the vote of a member that was restarted, given up by its application, and restarted again.
    ("token", 1_820_009_868),
    ("timestamp", 1_820_006_610),  # the judge missed a member whose expulsion only restarted ones had received
    ("timestamp", 1_820_006_566),  # an application that had just been given something was no reason, nor was anything
    # The judge did not see that a member knows the views which it has made, also if it has delivered none of them.
    ("token", 2_400_001_112),
    # The judge did not see that a restarted member waits for a view which let its former life in.
    ("sequencer", 2_400_008_616),
    # Put out, it crashed before the only other member had heard that, which then waited for its vote without an end.
    ("sequencer", 2_400_000_574),
    # The judge did not see that a member may be expelled after its crash, and vote on that when it is back.
    ("sequencer", 1_820_003_632),
    # The word that a change is decided overtook the change, and was dropped: a busy ring went on without a bound.
    ("token", 1_700_002_839),
    # Applications were blamed for what they were given in the moment in which another member had been put out.
    ("token", 1_700_006_076),
    ("token", 1_420_000_051),  # two engines of one node, the first of which served on, made views of the same name
    ("timestamp", 1_150_001_657),  # a member that had evicted itself went before one that was cut off knew of it
    ("timestamp", 1_150_001_028),  # the judge forgot that a restarted leaver may have kept the view without it
    ("sequencer", 1_150_001_728),  # the judge did not see that a leaver had told a restarted member of its leave
    ("sequencer", 1_150_000_540),  # the judge did not know of an expulsion that nobody had delivered
    ("token", 1_150_000_834),  # the judge did not see that a restarted member still waits for its bootstrap
    ("sequencer", 900_000_109),  # restarted members did not ask a member for its vote that had left, undecided
    ("timestamp", 925_000_467),  # the same, where the only other member was to be evicted
    ("timestamp", 920_000_137),  # a join that was given up kept its vote, and the next engine of the node took it, too
    ("sequencer", 900_000_413),  # applications that waited for SAFE messages which another member lacked were evicted
    ("sequencer", 201_000_094),  # a restarted leaver was sent away although its leave was not decided without it
    ("timestamp", 191_000_067),  # a newcomer waited for the end of a large message whose sender waited for more members
    ("token", 192_000_026),  # the judge took a member that had left a group which did not work for one that was there
    ("sequencer", 1_014),  # a member that was evicted, and did not receive, knew no reason why it was out
    ("timestamp", 1_002),  # the judge took the end of a stall without an end for its begin
    ("timestamp", 500_023),  # a member that was out was blamed for not receiving
    ("token", 500_011),  # restarted members did not know which members the coordinator heard
    ("token", 500_070),  # a large message could not end in a view that was too small, and nobody could come in before
    ("sequencer", 800_070),  # the judge did not see that a member had left which a restarted one missed
    ("token", 500_027),  # of two members that were restarted together one showed a token of a lock that nobody held
    ("sequencer", 760_000_160),  # the judge did not see that the last other member left while a restarted one was down
    ("sequencer", 760_000_442),  # a leaver went in the moment in which it proposed a view to a restarted member
    ("sequencer", 760_000_227),  # the beacon of the next ring overtook its COMMIT: a restarted member asked to join it
    ("sequencer", 760_000_796),  # the same as 760000160, after an expulsion and two restarts
    # A member that was cut off for a second was evicted for what its last word before the cut said.
    ("sequencer", 1_520_000_210),
    # A reset that brought together as many members as it asked for, one of them restarted, was told that it failed.
    ("sequencer", 1_520_000_218),
)

OF_SLOW = (
    # The judge took calls without an acknowledgement for calls in a window, and the caller's datagrams for the group's.
    ("token", 2_170_000_158),
    ("token", 2_170_000_039),
    ("timestamp", 500_041),  # a late word about an expulsion that was over opened the buffers of a slow member
    ("token", 1_210_000_028),  # a segment of a New List met one of its sender's first stay in the ring
)

OF_SITES = (
    705_000_546,  # a large message began again because its session left another group, and came twice
    595_000_742,  # the same, to several groups
    560_500_072,  # a message to two groups overtook the signal of the one that it was not received by
    560_500_077,  # the same, where a daemon crashed and its site was cut in both directions
    560_500_003,  # a daemon that left a group and joined it again counted on an interest that its leave had ended
    560_001_010,  # a lost segment of an UNRELIABLE block kept a daemon from rest
    560_001_034,  # a large message of a session that had left did not begin again when a daemon came
    560_001_052,  # rosters were exchanged behind a signal, and the groups that had a view of it did not hear the signal
    930_000_047,  # a group that a session sent to ended with its own leave, and the message did not name the group
    695_000_333,  # what waited for a group that its session had left went by a number that the group had no more
)


OF_MANY_GROUPS = (
    ("token", 1_170_000_374),  # the judge forgot which view a group had when the session had left the underlay itself
    # A session that receives in one order came into a group behind the signal, and its trace had none of that group;
    # nor had other sessions the signal in views of their groups on the way.
    ("sequencer", 1_170_001_185),
    ("sequencer", 1_170_004_303),  # the same, with a node that goes on alone
    ("sequencer", 1_185_000_694),  # a message to two groups came before the signal of the second one
)


@pytest.mark.parametrize(("orderer", "seed"), SEEDS)
def test_a_seed_that_failed_once_holds(orderer: str, seed: int) -> None:
    result = run_seed(orderer, seed)
    assert result.held, "\n".join((result.command, *result.failures))


@pytest.mark.parametrize(("orderer", "seed"), OF_MEMBERSHIP)
def test_a_seed_about_membership_that_failed_once_holds(orderer: str, seed: int) -> None:
    result = run_seed(orderer, seed, profile="membership")
    assert result.held, "\n".join((result.command, *result.failures))


@pytest.mark.parametrize(("orderer", "seed"), OF_PATIENCE)
def test_a_seed_about_patience_that_failed_once_holds(orderer: str, seed: int) -> None:
    result = run_seed(orderer, seed, profile="patience")
    assert result.held, "\n".join((result.command, *result.failures))


@pytest.mark.parametrize(("orderer", "seed"), OF_ENDURANCE)
def test_a_seed_about_endurance_that_failed_once_holds(orderer: str, seed: int) -> None:
    result = run_seed(orderer, seed, profile="endurance")
    assert result.held, "\n".join((result.command, *result.failures))


@pytest.mark.parametrize(("orderer", "seed"), OF_SLOW)
def test_a_seed_about_slow_receivers_that_failed_once_holds(orderer: str, seed: int) -> None:
    result = run_seed(orderer, seed, profile="slow")
    assert result.held, "\n".join((result.command, *result.failures))


@pytest.mark.parametrize("seed", OF_SITES)
def test_a_seed_of_sites_that_failed_once_holds(seed: int) -> None:
    result = run_seed("sites", seed)
    assert result.held, "\n".join((result.command, *result.failures))


@pytest.mark.parametrize(("orderer", "seed"), OF_MANY_GROUPS)
def test_a_seed_with_many_groups_that_failed_once_holds(orderer: str, seed: int) -> None:
    result = run_seed(orderer, seed, profile=MANY_GROUPS)
    assert result.held, "\n".join((result.command, *result.failures))


@pytest.mark.parametrize(("orderer", "seed"), STOOD_STILL)
def test_a_group_that_stood_still_without_need_once_goes_on(orderer: str, seed: int) -> None:
    outcome = run_scenario(drawn_scenario("endurance", seed, orderer))
    assert outcome.held, "\n".join((outcome.command, *outcome.failures))
    assert outcome.is_quiet


def test_a_coordinator_looks_again_when_its_wait_for_restarted_members_is_over() -> None:
    """It slept over that moment once, and a member that it needed gave up its leave meanwhile."""
    outcome = run_scenario(drawn_scenario("endurance", 600_081, "token"))
    assert outcome.held, "\n".join((outcome.command, *outcome.failures))
    assert outcome.is_quiet
