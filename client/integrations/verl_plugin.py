"""What VERL_USE_EXTERNAL_MODULES names: importing it registers our trainers."""

from slurm_interleave.client.integrations.verl import register

register()
